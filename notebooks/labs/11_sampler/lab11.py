# %% [markdown]
# # Lab 11 · The sampler
#
# One row of logits to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 11`), and
# `minivllm lab check 11` grades it.

# %%
from minivllm.course.grader.words import tell_list
from minivllm.course.notebook import note, predict, table
from minivllm.lessons.lab11 import play as play_sampler

LOGITS = [3.0, 2.0, 1.0, 0.0]

# %% [markdown]
# ## Temperature

# %%
table(
    [play_sampler.row(f"temperature {t:g}", LOGITS, temperature=t) for t in (0.5, 1.0, 2.0)],
    caption="probabilities of four tokens with the logits 3, 2, 1, 0",
)

# %% [markdown]
# ## Cuts

# %%
kept = play_sampler.kept(LOGITS, top_p=0.7)
probs = play_sampler.probabilities(LOGITS)
predict(
    f"The probabilities are {', '.join(f'{p:.2f}' for p in probs)}. Which tokens does top_p = 0.7 keep?",
    tell_list(kept),
    {
        tell_list([0]): "Together the kept tokens must reach 0.7.",
        tell_list([0, 1, 2]): "Two of them are enough.",
    },
    right="The token that crosses p is kept, and nothing beyond it.",
)

# %%
first = play_sampler.kept(LOGITS, top_k=3, top_p=0.9)
predict(
    "And top_k = 3 together with top_p = 0.9?",
    tell_list(first),
    {
        tell_list(
            play_sampler.kept(LOGITS, top_p=0.9)
        ): "That is top_p alone. Top-k comes first, and what it keeps is a distribution of its own.",
        tell_list([0]): "One token does not reach 0.9.",
    },
    right="Of the three tokens that top-k keeps, two have 0.9 of the probability that is left.",
)

# %% [markdown]
# ## Penalties

# %%
table(
    [
        play_sampler.row("nothing", LOGITS),
        play_sampler.row("frequency 1, output 0 0", LOGITS, frequency_penalty=1.0, output=[0, 0]),
        play_sampler.row("presence 1, output 0 0", LOGITS, presence_penalty=1.0, output=[0, 0]),
        play_sampler.row(
            "repetition 2, prompt 1, output 0 0", LOGITS, repetition_penalty=2.0, output=[0, 0], prompt=[1]
        ),
    ],
    caption="probabilities, with what was said before",
)

# %% [markdown]
# ## What a seed fixes

# %%
alone = play_sampler.draws([7], calls=6)
company = play_sampler.draws([7, None, 8], calls=6)
table(
    [{"row": "seed 7, alone", "tokens": tell_list(alone[0])}]
    + [
        {"row": f"{'no seed' if seed is None else f'seed {seed}'}, three rows", "tokens": tell_list(row)}
        for seed, row in zip([7, None, 8], company, strict=True)
    ],
    caption="six draws from 100 equally likely tokens",
)

# %%
same = "the same" if alone[0] == company[0] else "other"
note(f"The row with seed 7 draws {same} tokens, alone and in company. From draw to draw its generator goes on.")

# %% [markdown]
# ## Your turn
#
# Change logits and parameters, and look. With the path of your starter as `starter=` the row runs through your code.

# %%
table([play_sampler.row("mine", [2.0, 2.0, 1.0, -1.0], temperature=0.7, min_p=0.2)])
