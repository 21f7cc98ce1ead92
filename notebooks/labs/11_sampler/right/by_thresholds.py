"""A right solution of lab 11: thresholds instead of sorted places; the inverse of the sums."""


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    factor = torch.ones_like(temperature)
    hot = temperature >= SAMPLING_EPS
    factor[hot] = 1 / temperature[hot]
    return logits * factor[:, None]


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    probs = torch.softmax(logits, dim=-1)
    best, _ = probs.max(dim=-1)
    keep = probs >= (min_p * best)[:, None]
    return logits.masked_fill(~keep, MASKED)


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    if k is None and p is None:
        return logits
    if k is not None:
        best = logits.topk(int(k.max())).values
        logits = logits.masked_fill(logits < best.gather(1, k[:, None] - 1), MASKED)
    if p is not None:
        probs = logits.softmax(dim=-1)
        likelier = (probs[:, None, :] > probs[:, :, None]).float()  # [row, token, other]
        earlier = (probs[:, None, :] == probs[:, :, None]).float().tril(-1)
        before = ((likelier + earlier) * probs[:, None, :]).sum(dim=-1)
        first = before == before.min(dim=-1, keepdim=True).values
        logits = logits.masked_fill((before >= p[:, None]) & ~first, MASKED)
    return logits


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    masked = torch.zeros_like(logits, dtype=torch.bool)
    for row, sequences in bad_words.items():
        for sequence in sequences:
            before = len(sequence) - 1
            said = output_ids[row][len(output_ids[row]) - before :] if before else []
            masked[row, sequence[-1]] |= said == sequence[:before] and len(output_ids[row]) >= before
    return logits.masked_fill(masked, MASKED)


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    masked = torch.zeros_like(logits, dtype=torch.bool)
    for row, (minimum, stop_token_ids) in min_tokens.items():
        for token in stop_token_ids:
            masked[row, token] = minimum > len(output_ids[row])
    return logits.masked_fill(masked, MASKED)


def apply_penalties(
    logits: torch.Tensor,
    prompt_ids: list[list[int]],
    output_ids: list[list[int]],
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
) -> torch.Tensor:
    output = count_tokens(output_ids, logits)
    seen = torch.logical_or(output > 0, count_tokens(prompt_ids, logits) > 0)
    factor = torch.where(seen, repetition[:, None], 1.0)
    positive, negative = logits.clamp(min=0), logits.clamp(max=0)
    scaled = positive / factor + negative * factor
    return scaled - (frequency[:, None] * output + presence[:, None] * output.sign())


def process(logits: torch.Tensor, metadata: SamplingMetadata) -> tuple[torch.Tensor | None, torch.Tensor]:
    logits = logits.float()
    if metadata.allowed_token_ids_mask is not None:
        logits = apply_allowed_token_ids(logits, metadata.allowed_token_ids_mask)
    logits = apply_bad_words(logits, metadata.bad_words_token_ids, metadata.output_token_ids)
    logits = apply_min_tokens(logits, metadata.min_tokens, metadata.output_token_ids)
    logits = apply_logit_bias(logits, metadata.logit_bias)

    if metadata.frequency_penalties is not None:
        logits = apply_penalties(
            logits,
            metadata.prompt_token_ids,
            metadata.output_token_ids,
            presence=metadata.presence_penalties,
            frequency=metadata.frequency_penalties,
            repetition=metadata.repetition_penalties,
        )
    favourites = logits.argmax(dim=-1)
    if metadata.all_greedy:
        return favourites, logits
    logits = apply_temperature(logits, metadata.temperature)
    if metadata.min_p is not None:
        logits = apply_min_p(logits, metadata.min_p)
    logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)
    return (None if metadata.all_random else favourites), logits


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    numbers = torch.rand(len(probs), generator=default)
    for row, generator in generators.items():
        numbers[row] = torch.rand(1, generator=generator)
    sums = probs.double().cumsum(dim=-1)
    numbers = numbers.double() * sums[:, -1]
    return (sums <= numbers[:, None]).sum(dim=-1)


class Sampler(given.Sampler):
    @boundary("sampler.forward")
    def forward(
        self, logits: torch.Tensor, metadata: SamplingMetadata, discarded_rows: set[int] = frozenset()
    ) -> SamplerOutput:
        greedy, processed = process(logits, metadata)
        sampled = greedy
        if not metadata.all_greedy:
            probs = processed.softmax(dim=-1)
            sampled = random_sample(
                probs,
                {row: own for row, own in metadata.generators.items() if row not in discarded_rows},
                self.generator,
            )
            if greedy is not None:
                keep = metadata.temperature < SAMPLING_EPS
                sampled = greedy * keep + sampled * ~keep
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
