"""Wrong solutions of lab 11: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Harmless, Wrong

CUTS = "apply_top_k_top_p"
PENALTIES = "apply_penalties"
DRAW = "random_sample"
UNNEEDED = "unneeded = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - p[:, None]"
TOP_K = "        ascending = ascending.masked_fill(ascending < kth_largest, MASKED)\n"
SCATTER = "return torch.empty_like(logits).scatter_(dim=-1, index=order, src=ascending)"
TEMPERATURE = "    logits = apply_temperature(logits, metadata.temperature)\n"
MIN_P = "    if metadata.min_p is not None:\n        logits = apply_min_p(logits, metadata.min_p)\n"
LAST = "    return greedy, apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)\n"
BIAS = "    if metadata.logit_bias:\n        logits = apply_logit_bias(logits, metadata.logit_bias)\n"
PENALIZE = (
    "    if metadata.presence_penalties is not None:\n"
    "        logits = apply_penalties(\n"
    "            logits,\n"
    "            metadata.prompt_token_ids,\n"
    "            metadata.output_token_ids,\n"
    "            metadata.presence_penalties,\n"
    "            metadata.frequency_penalties,\n"
    "            metadata.repetition_penalties,\n"
    "        )\n"
)
GREEDY = "    greedy = None if metadata.all_random else logits.argmax(dim=-1)\n"
RACE = "return probs.div_(q).argmax(dim=-1)"
OWN = "        q[row].exponential_(generator=generator)"

WRONG = [
    Wrong(
        id="temperature_multiplies",
        task="11.1",
        symbol="apply_temperature",
        old="logits / divisor[:, None]",
        new="logits * divisor[:, None]",
        misconception="hotter means larger",
        message="the logits were multiplied by the temperature. A high temperature makes differences smaller: divide.",
    ),
    Wrong(
        id="temperature_zero_divides",
        task="11.1",
        symbol="apply_temperature",
        old="divisor = torch.where(temperature < SAMPLING_EPS, torch.ones_like(temperature), temperature)",
        new="divisor = temperature",
        misconception="greedy rows are handled later",
        message="a row with temperature 0 was divided by 0. Leave greedy rows as they are.",
    ),
    Wrong(
        id="temperature_of_row_zero",
        task="11.1",
        symbol="apply_temperature",
        old="divisor[:, None]",
        new="divisor[:1, None]",
        misconception="a batch has one temperature",
        message="all rows were divided by the temperature of row 0.",
    ),
    Wrong(
        id="temperature_in_place",
        task="11.1",
        symbol="apply_temperature",
        old="return logits / divisor[:, None]",
        new="return logits.div_(divisor[:, None])",
        misconception="nobody needs the old ones",
        message="you wrote into the logits that you were given. Logprobs are made of the same logits afterwards.",
    ),
    Wrong(
        id="parameters_in_place",
        task="11.1",
        symbol="apply_temperature",
        old="divisor = torch.where(temperature < SAMPLING_EPS, torch.ones_like(temperature), temperature)",
        new="divisor = temperature.masked_fill_(temperature < SAMPLING_EPS, 1.0)",
        misconception="it is my tensor now",
        message="you wrote into the temperatures that you were given. The next step reads them again, and no "
        "row is greedy then.",
    ),
    Wrong(
        id="min_p_absolute",
        task="11.2",
        symbol="apply_min_p",
        old="min_p[:, None] * probs.amax(dim=-1, keepdim=True)",
        new="min_p[:, None]",
        misconception="min_p is a probability",
        message="min_p was taken as a probability. It is a share of the likeliest token's.",
    ),
    Wrong(
        id="min_p_of_logits",
        task="11.2",
        symbol="apply_min_p",
        old="probs = logits.softmax(dim=-1)",
        new="probs = logits",
        misconception="logits are as good as probabilities",
        message="logits were compared. Ratios have a meaning for probabilities alone.",
    ),
    Wrong(
        id="crossing_token_is_cut",
        task="11.2",
        symbol=CUTS,
        old=UNNEEDED,
        new="share = ascending.softmax(dim=-1)\n        unneeded = share.cumsum(dim=-1) - share <= 1 - p[:, None]",
        misconception="stay below p",
        message="the token that crosses p was cut. It is kept: the kept tokens together reach p.",
    ),
    Wrong(
        id="one_token_more",
        task="11.2",
        symbol=CUTS,
        old=UNNEEDED,
        new="share = ascending.softmax(dim=-1).cumsum(dim=-1)\n"
        "        unneeded = torch.cat([share[:, 1:], torch.ones_like(share[:, :1])], dim=1) <= 1 - p[:, None]",
        misconception="p must be exceeded",
        message="top-p kept one token more than is needed to reach p.",
    ),
    Wrong(
        id="p_from_the_wrong_end",
        task="11.2",
        symbol=CUTS,
        old=UNNEEDED,
        new="unneeded = ascending.softmax(dim=-1).cumsum(dim=-1) > p[:, None]",
        misconception="cumulate, and cut above p",
        message="the probabilities were added up from the small end, but compared with p. From there it is 1 - p.",
    ),
    Wrong(
        id="may_drop_everything",
        task="11.2",
        symbol=CUTS,
        old="        unneeded[:, -1] = False\n",
        new="",
        misconception="1 - p is below 1",
        message="a very small p dropped every token: in float32 1 - p is 1. The likeliest token always stays.",
    ),
    Wrong(
        id="top_p_before_top_k",
        task="11.2",
        symbol=CUTS,
        old=UNNEEDED,
        new="unneeded = logits.sort(dim=-1)[0].softmax(dim=-1).cumsum(dim=-1) <= 1 - p[:, None]",
        misconception="the order does not matter",
        message="top-p was measured on the distribution before top-k. What top-k keeps must sum to 1 first.",
    ),
    Wrong(
        id="ties_broken_at_k",
        task="11.2",
        symbol=CUTS,
        old="ascending = ascending.masked_fill(ascending < kth_largest, MASKED)",
        new="ascending = ascending.masked_fill(\n"
        "            torch.arange(logits.shape[1])[None] < (logits.shape[1] - k)[:, None], MASKED\n"
        "        )",
        misconception="k means k tokens",
        message="of tokens with the same logit as the k-th some were cut. All of them stay.",
    ),
    Wrong(
        id="k_minus_one",
        task="11.2",
        symbol=CUTS,
        old="ascending < kth_largest",
        new="ascending <= kth_largest",
        misconception="an inequality that is off by one",
        message="the k-th likeliest token was cut too.",
    ),
    Wrong(
        id="sorted_order_returned",
        task="11.2",
        symbol=CUTS,
        old=SCATTER,
        new="return ascending",
        misconception="a distribution has no order",
        message="the logits came back in sorted order. Each must stand at its own token again.",
    ),
    Wrong(
        id="gathered_back",
        task="11.2",
        symbol=CUTS,
        old=SCATTER,
        new="return ascending.gather(1, order)",
        misconception="gather is its own inverse",
        message="the logits came back in a wrong order: to undo a sort, scatter with its indices.",
    ),
    Wrong(
        id="parameters_of_row_zero",
        task="11.2",
        symbol=CUTS,
        old="    ascending, order = logits.sort(dim=-1)",
        new="    k = None if k is None else k[:1].expand(len(k))\n"
        "    p = None if p is None else p[:1].expand(len(p))\n"
        "    ascending, order = logits.sort(dim=-1)",
        misconception="a batch has one k and one p",
        message="all rows were cut with the parameters of row 0.",
    ),
    Wrong(
        id="bad_word_always_banned",
        task="11.3",
        symbol="apply_bad_words",
        old="if not prefix or output[-len(prefix) :] == prefix:",
        new="if True:",
        misconception="ban its last token",
        message="the last token of a bad word of several tokens was masked always. It is masked only where the output "
        "ends with the tokens before it.",
    ),
    Wrong(
        id="bad_word_anywhere",
        task="11.3",
        symbol="apply_bad_words",
        old="output[-len(prefix) :] == prefix",
        new="set(prefix) <= set(output)",
        misconception="said is said",
        message="the beginning of a bad word was found somewhere in the output. It must stand at the end of it.",
    ),
    Wrong(
        id="bad_word_of_one_token_allowed",
        task="11.3",
        symbol="apply_bad_words",
        old="if not prefix or output",
        new="if prefix and output",
        misconception="a word has several tokens",
        message="a bad word of one token was not masked. Nothing stands before it, so it is masked always.",
    ),
    Wrong(
        id="min_tokens_off_by_one",
        task="11.3",
        symbol="apply_min_tokens",
        old="len(output_ids[row]) < minimum",
        new="len(output_ids[row]) <= minimum",
        misconception="the first m tokens cannot end it",
        message="stop tokens are masked for one token too many: with min_tokens outputs the row may end.",
    ),
    Wrong(
        id="min_tokens_of_one_stop_token",
        task="11.3",
        symbol="apply_min_tokens",
        old="logits[row, sorted(stop_token_ids)]",
        new="logits[row, sorted(stop_token_ids)[-1:]]",
        misconception="the end of text is the stop token",
        message="of several stop tokens one was masked. min_tokens masks all that are in the set.",
    ),
    Wrong(
        id="min_tokens_counts_prompts",
        task="11.3",
        symbol="process",
        old="apply_min_tokens(logits, metadata.min_tokens, metadata.output_token_ids)",
        new="apply_min_tokens(\n"
        "            logits,\n"
        "            metadata.min_tokens,\n"
        "            [p + o for p, o in zip(metadata.prompt_token_ids, metadata.output_token_ids)],\n"
        "        )",
        misconception="tokens are tokens",
        message="min_tokens was compared with prompt and outputs. It counts outputs alone.",
    ),
    Wrong(
        id="allowed_is_forbidden",
        task="11.3",
        symbol="process",
        old="apply_allowed_token_ids(logits, metadata.allowed_token_ids_mask)",
        new="apply_allowed_token_ids(logits, ~metadata.allowed_token_ids_mask)",
        misconception="True is allowed",
        message="the allowed tokens were masked, and the others were not. The mask marks what is forbidden.",
    ),
    Wrong(
        id="repetition_divides_always",
        task="11.3",
        symbol=PENALTIES,
        old="torch.where(logits > 0, logits / factor, logits * factor)",
        new="logits / factor",
        misconception="divide to weaken",
        message="a negative logit was divided, which makes it stronger. Multiply it.",
    ),
    Wrong(
        id="repetition_of_outputs_only",
        task="11.3",
        symbol=PENALTIES,
        old="in_prompt | (output_counts > 0)",
        new="output_counts > 0",
        misconception="only what was generated was said",
        message="the repetition penalty left the prompt out. It counts prompt and output.",
    ),
    Wrong(
        id="presence_counts_prompts",
        task="11.3",
        symbol=PENALTIES,
        old="presence[:, None] * (output_counts > 0)",
        new="presence[:, None] * (in_prompt | (output_counts > 0))",
        misconception="present is present",
        message="the presence penalty counted the prompt. It looks at the output alone.",
    ),
    Wrong(
        id="frequency_is_presence",
        task="11.3",
        symbol=PENALTIES,
        old="frequency[:, None] * output_counts",
        new="frequency[:, None] * (output_counts > 0)",
        misconception="frequent is yes or no",
        message="the frequency penalty was taken once. It is taken as often as the token occurs.",
    ),
    Wrong(
        id="presence_is_frequency",
        task="11.3",
        symbol=PENALTIES,
        old="presence[:, None] * (output_counts > 0)",
        new="presence[:, None] * output_counts",
        misconception="more is worse",
        message="the presence penalty was taken for each occurrence. It is taken once.",
    ),
    Wrong(
        id="frequency_before_repetition",
        task="11.3",
        symbol=PENALTIES,
        old="    # a negative logit",
        new="    logits = logits - frequency[:, None] * output_counts\n    # a negative logit",
        misconception="penalties add up in any order",
        message="frequency came before repetition. The repetition penalty scales the logits as they are given.",
        more=(
            (
                PENALTIES,
                "factor)\n    logits = logits - frequency[:, None] * output_counts\n    return",
                "factor)\n    return",
            ),
        ),
    ),
    Wrong(
        id="penalties_after_temperature",
        task="11.3",
        symbol="process",
        old=PENALIZE,
        new="",
        misconception="the order does not matter",
        message="the penalties came after the temperature. They change the logits as the model gave them.",
        more=(("process", TEMPERATURE, TEMPERATURE + PENALIZE),),
    ),
    Wrong(
        id="min_p_before_temperature",
        task="11.3",
        symbol="process",
        old=TEMPERATURE + MIN_P,
        new=MIN_P + TEMPERATURE,
        misconception="cut first, then heat",
        message="min-p came before the temperature. It cuts the distribution that is drawn from.",
    ),
    Wrong(
        id="temperature_last",
        task="11.3",
        symbol="process",
        old=TEMPERATURE,
        new="",
        misconception="cuts are made on the model's distribution",
        message="the temperature came after the cuts. They are made on the distribution that is drawn from.",
        more=(
            (
                "process",
                LAST,
                "    logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)\n"
                "    return greedy, apply_temperature(logits, metadata.temperature)\n",
            ),
        ),
    ),
    Wrong(
        id="min_p_after_top_p",
        task="11.3",
        symbol="process",
        old=MIN_P + LAST,
        new="    logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)\n"
        + MIN_P
        + "    return greedy, logits\n",
        misconception="cuts commute",
        message="min-p came after top-p. It comes before: what it cuts does not count for p.",
    ),
    Wrong(
        id="bias_after_penalties",
        task="11.3",
        symbol="process",
        old=BIAS,
        new="",
        misconception="the bias has the last word",
        message="the bias was added after the penalties. They scale what the bias has made of the logits.",
        more=(("process", PENALIZE, PENALIZE + BIAS),),
    ),
    Wrong(
        id="greedy_from_raw_logits",
        task="11.3",
        symbol="process",
        old="    logits = logits.to(torch.float32)\n",
        new="    logits = logits.to(torch.float32)\n" + GREEDY,
        misconception="greedy is the model's favourite",
        message="the greedy token was taken from the raw logits. Masks, bias and penalties come before it.",
        more=(("process", PENALIZE + GREEDY, PENALIZE),),
    ),
    Wrong(
        id="bad_words_forgotten",
        task="11.3",
        symbol="process",
        old="    if metadata.bad_words_token_ids:\n"
        "        logits = apply_bad_words(logits, metadata.bad_words_token_ids, metadata.output_token_ids)\n",
        new="",
        misconception="words are the detokenizer's business",
        message="bad words were not masked.",
    ),
    Wrong(
        id="generators_ignored",
        task="11.4",
        symbol=DRAW,
        old=OWN,
        new="        pass",
        misconception="random is random",
        message="a row with a seed draws from the default generator, so its seed fixes nothing.",
        more=((DRAW, "if len(generators) < len(probs):", "if True:"),),
    ),
    Wrong(
        id="all_or_nothing",
        task="11.4",
        symbol=DRAW,
        old="    for row, generator in generators.items():",
        new="    if len(generators) != len(probs):\n"
        "        return probs.div_(q).argmax(dim=-1)\n"
        "    for row, generator in generators.items():",
        misconception="a batch is seeded or not",
        message="seeds count only when every row has one. A seeded row draws the same in any company.",
    ),
    Wrong(
        id="seeded_anew",
        task="11.4",
        symbol=DRAW,
        old=OWN,
        new="        q[row].exponential_(generator=torch.Generator().manual_seed(generator.initial_seed()))",
        misconception="the seed makes the token",
        message="the generator was seeded anew for each draw, so a row draws the same every time. It goes on.",
    ),
    Wrong(
        id="one_noise_for_all",
        task="11.4",
        symbol=DRAW,
        old="        q.exponential_(generator=default)",
        new="        q[:] = torch.empty(probs.shape[1]).exponential_(generator=default)",
        misconception="one draw for the batch",
        message="all rows without a seed share their noise, and draw the same.",
    ),
    Wrong(
        id="times_noise",
        task="11.4",
        symbol=DRAW,
        old=RACE,
        new="return probs.mul_(q).argmax(dim=-1)",
        misconception="noise is a factor",
        message="the probabilities were multiplied by the noise. The race divides.",
    ),
    Wrong(
        id="uniform_noise",
        task="11.4",
        symbol=DRAW,
        old=RACE,
        new="return probs.div_(1 - torch.exp(-q)).argmax(dim=-1)",
        misconception="any noise will do",
        message="the noise is uniform. The race needs exponential noise, or the frequencies are not the probabilities.",
    ),
    Wrong(
        id="logits_for_probabilities",
        task="11.4",
        symbol=DRAW,
        old=RACE,
        new="return probs.exp().div_(q).argmax(dim=-1)",
        misconception="what comes in are logits",
        message="the probabilities were taken for logits: e^p is nearly the same for all tokens.",
    ),
    Wrong(
        id="smallest_wins",
        task="11.4",
        symbol=DRAW,
        old=RACE,
        new="return probs.div_(q).argmin(dim=-1)",
        misconception="the first one to arrive",
        message="the smallest quotient wins, which is the least likely token. Take the largest.",
    ),
    Wrong(
        id="seeds_the_default",
        task="11.4",
        symbol=DRAW,
        old=OWN,
        new="        default.manual_seed(int(torch.randint(2**31, (), generator=generator)))\n"
        "        q[row].exponential_(generator=default)",
        misconception="a seed is set, then drawn",
        message="a seeded row sets the default generator, and rows without a seed follow it.",
        more=(
            (
                DRAW,
                "    if len(generators) < len(probs):\n        q.exponential_(generator=default)\n",
                "",
            ),
            (
                DRAW,
                "    return probs",
                "    for row in set(range(len(probs))) - set(generators):\n"
                "        q[row].exponential_(generator=default)\n"
                "    return probs",
            ),
        ),
    ),
    Wrong(
        id="generator_of_another_row",
        task="11.4",
        symbol=DRAW,
        old="for row, generator in generators.items():",
        new="for row, generator in enumerate(generators.values()):",
        misconception="generators stand in row order",
        message="the n-th generator was given to row n. The keys say whose it is.",
    ),
    Wrong(
        id="noise_of_the_whole_batch",
        task="11.4",
        symbol=DRAW,
        old=OWN,
        new="        q[row] = torch.empty_like(probs).exponential_(generator=generator)[row]",
        misconception="draw all, take mine",
        message="a seeded row's noise depends on how many rows there are, and on which one it is.",
    ),
    Wrong(
        id="greedy_rows_draw",
        task="11.4",
        symbol="Sampler.forward",
        old="if greedy is not None:",
        new="if False:",
        misconception="a low temperature is enough",
        message="a row with temperature 0 was drawn. It keeps its greedy token.",
    ),
    Wrong(
        id="discarded_rows_draw",
        task="11.4",
        symbol="Sampler.forward",
        old=" if row not in discarded_rows}",
        new="}",
        misconception="what is thrown away costs nothing",
        message="the generator of a discarded row moved on: its tokens depend on how its prompt was chunked.",
    ),
    Wrong(
        id="draws_from_raw_logits",
        task="11.4",
        symbol="Sampler.forward",
        old="self._draw(processed.softmax(dim=-1), generators)",
        new="self._draw(logits.float().softmax(dim=-1), generators)",
        misconception="logits are logits",
        message="the draw was made from the raw logits. Everything that was processed is lost.",
    ),
]

HARMLESS = [
    Harmless(
        id="greedy_after_the_cuts",
        task="11.3",
        symbol="process",
        old=LAST,
        new="    logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)\n"
        "    return None if metadata.all_random else logits.argmax(dim=-1), logits\n",
        proof="A greedy row is not divided, its cuts are off, and no cut takes the likeliest token away.",
    ),
]
