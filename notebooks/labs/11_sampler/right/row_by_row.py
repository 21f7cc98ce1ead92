"""A right solution of lab 11: row by row; penalties by Counter; a Gumbel race."""

from collections import Counter


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    rows = [row if t < SAMPLING_EPS else row / t for row, t in zip(logits, temperature.tolist(), strict=True)]
    return torch.stack(rows)


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    result = logits.clone()
    for row, least in enumerate(min_p.tolist()):
        probs = logits[row].softmax(dim=0)
        result[row, probs < least * probs.max()] = MASKED
    return result


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    if k is None and p is None:
        return logits
    result = logits.clone()
    for row in range(len(logits)):
        if k is not None:
            result[row, logits[row] < logits[row].topk(int(k[row])).values[-1]] = MASKED
        if p is not None and p[row] < 1:
            probs = result[row].softmax(dim=0)
            total = 0.0
            for token in probs.argsort(descending=True).tolist():
                if total >= float(p[row]):
                    result[row, token] = MASKED
                total += float(probs[token])
    return result


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    rows = []
    for row, values in enumerate(logits):
        banned = {
            sequence[-1]
            for sequence in bad_words.get(row, [])
            if all(a == b for a, b in zip(sequence[-2::-1], output_ids[row][::-1], strict=False))
            and len(output_ids[row]) >= len(sequence) - 1
        }
        rows.append([MASKED if token in banned else value for token, value in enumerate(values.tolist())])
    return torch.tensor(rows)


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    result = logits.clone()
    for row in range(len(logits)):
        minimum, stops = min_tokens.get(row, (0, set()))
        for token in stops if len(output_ids[row]) < minimum else ():
            result[row, token] = MASKED
    return result


def apply_penalties(
    logits: torch.Tensor,
    prompt_ids: list[list[int]],
    output_ids: list[list[int]],
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
) -> torch.Tensor:
    result = logits.clone()
    for row, (prompt, output) in enumerate(zip(prompt_ids, output_ids, strict=True)):
        for token in {*prompt, *output}:
            weaker = result[row, token] / repetition[row], result[row, token] * repetition[row]
            result[row, token] = weaker[0] if result[row, token] > 0 else weaker[1]
        for token, times in Counter(output).items():
            result[row, token] -= times * frequency[row] + presence[row]
    return result


def process(logits: torch.Tensor, metadata: SamplingMetadata) -> tuple[torch.Tensor | None, torch.Tensor]:
    logits = logits.float()
    if metadata.allowed_token_ids_mask is not None:
        logits = apply_allowed_token_ids(logits, metadata.allowed_token_ids_mask)
    logits = apply_bad_words(logits, metadata.bad_words_token_ids, metadata.output_token_ids)
    logits = apply_min_tokens(logits, metadata.min_tokens, metadata.output_token_ids)
    logits = apply_logit_bias(logits, metadata.logit_bias)

    if metadata.presence_penalties is not None:
        numbers = metadata.presence_penalties, metadata.frequency_penalties, metadata.repetition_penalties
        logits = apply_penalties(logits, metadata.prompt_token_ids, metadata.output_token_ids, *numbers)
    greedy = logits.argmax(dim=1)
    if metadata.temperature is not None:
        logits = apply_temperature(logits, metadata.temperature)
    if metadata.min_p is not None:
        logits = apply_min_p(logits, metadata.min_p)
    return greedy, apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    noise = torch.stack(
        [torch.rand(probs.shape[1], generator=generators.get(row, default)) for row in range(len(probs))]
    )
    return (probs.log() - (-noise.clamp(min=1e-30).log()).log()).argmax(dim=-1)


class Sampler(given.Sampler):
    @boundary("sampler.forward")
    def forward(
        self, logits: torch.Tensor, metadata: SamplingMetadata, discarded_rows: set[int] = frozenset()
    ) -> SamplerOutput:
        greedy, processed = process(logits, metadata)
        sampled = greedy
        if not metadata.all_greedy:
            own = {row: metadata.generators[row] for row in metadata.generators.keys() - discarded_rows}
            drawn = random_sample(processed.softmax(dim=-1), own, self.generator)
            sampled = [
                int(drawn[row]) if greedy is None or metadata.temperature[row] >= SAMPLING_EPS else int(greedy[row])
                for row in range(len(drawn))
            ]
            sampled = torch.tensor(sampled)
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
