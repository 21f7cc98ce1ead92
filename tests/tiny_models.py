"""Tiny random models as Hugging Face folders: config.json, model.safetensors and a small tokenizer.

`tiny_model` writes each kind once a session, into a temporary folder. The weights come from the seed alone, so the
same settings give the same model in every run. `write_tiny_model` writes one where a test wants it.
"""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

VOCAB_SIZE = 320  # 3 special tokens, 256 bytes, and merges
EOS_TOKEN_ID = 2
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2
CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps and the fox runs home.",
    "A cache keeps what was computed before, and the scheduler asks it for blocks of tokens.",
]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model(family: str = "llama", **settings: Any) -> Path:
    """The folder of a tiny model, written at its first use in this session. `settings`: see `write_tiny_model`."""
    return _written(json.dumps([family, settings], sort_keys=True))


def write_tiny_model(
    folder: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    dtype: str = "float32",
    num_layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_size: int = 16,
    tie: bool = True,
    max_position_embeddings: int = 512,
    rope: dict[str, Any] | None = None,
    max_shard_size: str = "1GB",
    generation: dict[str, Any] | None = None,
    tokenizer: bool = True,
    **config_fields: Any,
) -> Path:
    """Write a model of `family` (llama, mistral, qwen2 or qwen3) to `folder`.

    `rope` is config.json's rope_parameters, `generation` goes into generation_config.json, `config_fields` into
    config.json.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    fields = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": heads * 16,
        "intermediate_size": 96,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": max_position_embeddings,
        "tie_word_embeddings": tie,
        "rope_parameters": rope or {"rope_type": "default", "rope_theta": 10000.0},
        "bos_token_id": 1,
        "eos_token_id": EOS_TOKEN_ID,
        "pad_token_id": EOS_TOKEN_ID,
        **config_fields,
    }
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields))
    randomness = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=randomness)
            if "norm" in name:
                weight.copy_(1 + 0.1 * noise)
            elif weight.dim() == 1:
                weight.copy_(0.1 * noise)
            else:
                weight.copy_(noise * (1.0 if "embed" in name else 1.5 / weight.shape[1] ** 0.5))
    model.generation_config = GenerationConfig(eos_token_id=EOS_TOKEN_ID, pad_token_id=EOS_TOKEN_ID, bos_token_id=1)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=max_shard_size)
    if generation:
        path = folder / "generation_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    if tokenizer:
        write_tiny_tokenizer(folder)
    return folder


def write_tiny_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer with VOCAB_SIZE tokens, some of them words, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    end, start, stop = SPECIAL_TOKENS
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=start,
        eos_token=stop,
        pad_token=stop,
        unk_token=end,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


@functools.cache
def _session_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="minivllm-tiny-")  # removed when the interpreter ends


@functools.cache
def _written(spec: str) -> Path:
    family, settings = json.loads(spec)
    folder = Path(tempfile.mkdtemp(dir=_session_folder().name, prefix=f"{family}-"))
    return write_tiny_model(folder, family, **settings)
