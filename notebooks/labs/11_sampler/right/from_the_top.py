"""A right solution of lab 11: sorted from the top; multinomial draws."""


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    safe = temperature.clone()
    safe[temperature < SAMPLING_EPS] = 1
    return logits / safe.unsqueeze(1)


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    share = (logits - logits.max(dim=-1, keepdim=True).values).exp()  # of the likeliest
    return torch.where(share < min_p.unsqueeze(1), MASKED, logits)


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    if k is None and p is None:
        return logits
    result = logits.clone()
    if k is not None:
        best = logits.sort(dim=-1, descending=True).values
        worst_kept = best[torch.arange(len(k)), k - 1]
        result[logits < worst_kept.unsqueeze(1)] = MASKED
    if p is not None:
        probs, tokens = result.softmax(dim=-1).sort(dim=-1, descending=True)
        before = probs.cumsum(dim=-1) - probs  # of all that is likelier
        dropped = before >= p.unsqueeze(1)
        dropped[:, 0] = False
        result[torch.zeros_like(dropped).scatter(1, tokens, dropped)] = MASKED
    return result


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    pairs = [
        (row, sequence[-1])
        for row, sequences in bad_words.items()
        for sequence in sequences
        if [*output_ids[row], sequence[-1]][-len(sequence) :] == sequence
    ]
    result = logits.clone()
    for row, token in pairs:
        result[row, token] = MASKED
    return result


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    short = [row for row, (minimum, _) in min_tokens.items() if len(output_ids[row]) < minimum]
    pairs = [(row, token) for row in short for token in min_tokens[row][1]]
    if not pairs:
        return logits.clone()
    places = torch.tensor(pairs, dtype=torch.int64).T
    return logits.index_put(tuple(places), torch.tensor(MASKED))


def apply_penalties(
    logits: torch.Tensor,
    prompt_ids: list[list[int]],
    output_ids: list[list[int]],
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
) -> torch.Tensor:
    said, written = count_tokens(prompt_ids, logits), count_tokens(output_ids, logits)
    repeated = (said + written) > 0
    scale = torch.where(logits > 0, 1 / repetition.unsqueeze(1), repetition.unsqueeze(1))
    result = torch.where(repeated, logits * scale, logits)
    return result - frequency.unsqueeze(1) * written - presence.unsqueeze(1) * written.clamp(max=1)


def process(logits: torch.Tensor, metadata: SamplingMetadata) -> tuple[torch.Tensor | None, torch.Tensor]:
    logits = logits.float()
    if metadata.allowed_token_ids_mask is not None:
        logits = apply_allowed_token_ids(logits, metadata.allowed_token_ids_mask)
    logits = apply_bad_words(logits, metadata.bad_words_token_ids, metadata.output_token_ids)
    logits = apply_min_tokens(logits, metadata.min_tokens, metadata.output_token_ids)
    logits = apply_logit_bias(logits, metadata.logit_bias)

    if metadata.repetition_penalties is not None:
        logits = apply_penalties(
            logits,
            metadata.prompt_token_ids,
            metadata.output_token_ids,
            metadata.presence_penalties,
            metadata.frequency_penalties,
            metadata.repetition_penalties,
        )
    greedy = None
    if not metadata.all_random:
        greedy = logits.max(dim=-1).indices
    if not metadata.all_greedy:
        logits = apply_temperature(logits, metadata.temperature)
        logits = logits if metadata.min_p is None else apply_min_p(logits, metadata.min_p)
        logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)
    return greedy, logits


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    tokens = torch.multinomial(probs, 1, generator=default)[:, 0]
    for row, generator in generators.items():
        tokens[row] = torch.multinomial(probs[row], 1, generator=generator)
    return tokens


class Sampler(given.Sampler):
    @boundary("sampler.forward")
    def forward(
        self, logits: torch.Tensor, metadata: SamplingMetadata, discarded_rows: set[int] = frozenset()
    ) -> SamplerOutput:
        greedy, processed = process(logits, metadata)
        sampled = greedy
        if not metadata.all_greedy:
            allowed = dict(metadata.generators)
            for row in discarded_rows:
                allowed.pop(row, None)
            sampled = random_sample(torch.softmax(processed, dim=-1), allowed, self.generator)
            if not metadata.all_random:
                cold = metadata.temperature < SAMPLING_EPS
                sampled[cold] = greedy[cold]
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
