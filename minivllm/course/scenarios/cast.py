"""The running example: request A and its companions, and the settings S0 that all scenarios share."""

from typing import Any

Messages = list[dict[str, str]]


def user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


A = user("Name the capital of France and the capital of Italy.")
B = user("Name the capital of France and the capital of Spain.")
C = user("What color is the sky?")
D = user("Count from one to ten in words.")
E = user("Write a smiley.")
F = [
    *A,
    {"role": "assistant", "content": "The capital of France is Paris and the capital of Italy is Rome."},
    *user("And of Spain?"),
]
G = user("I have a question about Europe. Please tell me: what is the capital of France?")
H = user("What is the capital of France?")
CITIES = "".join(
    f"{city} is a city in {country}. "
    for city, country in (
        ("Paris", "France"),
        ("Rome", "Italy"),
        ("Madrid", "Spain"),
        ("Berlin", "Germany"),
        ("Vienna", "Austria"),
        ("Lisbon", "Portugal"),
        ("Athens", "Greece"),
        ("Oslo", "Norway"),
    )
)
L = user(CITIES + "Name the city in Norway.")
V = user(CITIES + CITIES + "Which city is in Greece?")
R = user("Name the capital of France and the capital of Italy. Answer in one full sentence, please.")

A_TOKEN_IDS = (504, 3575, 282, 4649, 314, 7042, 284, 260, 3575, 282, 7158, 314, 7268, 30, 2)  # its answer

S0: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks_override": 32,  # 31 usable: a picture of 4 rows of 8
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 256,
    "dtype": "float32",
    "device": "cpu",
    "attention_backend": "torch",
}
