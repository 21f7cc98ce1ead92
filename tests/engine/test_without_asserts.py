"""`python -O` drops every assert: what a caller gets wrong is refused all the same."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
SCRIPT = """
import sys
from minivllm import LLM, SamplingParams
from minivllm.config import EngineConfig
from minivllm.errors import InputError
import test_config
from engine.helpers import SETTINGS
from engine import test_bad_input as bad, test_chat as chats

assert False, "asserts are off"
llm = LLM(sys.argv[1], multiprocess=False, **SETTINGS)

def generate(prompt=bad.GOOD, fields={}, **given):
    llm.generate(prompt, bad.changed(**fields), use_tqdm=False, **given)

wrong = [(field, value) for field, values in test_config.WRONG.items() for value in values]
never = bad.PARAMS | bad.ONLY_THE_ENGINE_KNOWS
tries = {f"setting {f} {v!r}": lambda f=f, v=v: EngineConfig(**{f: v}) for f, v in wrong}
tries |= {f"prompt {n}": lambda p=p: generate(p) for n, (p, _) in bad.PROMPTS.items()}
tries |= {f"made {n}": lambda f=f: SamplingParams(**f) for n, (f, _) in bad.PARAMS.items()}
tries |= {f"changed {n}": lambda f=f: generate(fields=f) for n, (f, _) in never.items()}
tries |= {f"cut {n}": lambda k=k: generate("word " * 60, tokenization_kwargs=k) for n, (k, _) in chats.WRONG.items()}
tries |= {f"chat {n}": lambda m=m, g=g: llm.chat(m, **g) for n, (m, g, _) in chats.REFUSED.items()}
for name, call in tries.items():
    try:
        call()
    except InputError:
        continue
    except Exception as error:
        print(name, repr(error))
    else:
        print(name, "was not refused")
print(len(tries), "tried")
"""


def test_nothing_that_is_refused_rests_on_an_assert(tiny_folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", SCRIPT, tiny_folder],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    (count,) = done.stdout.splitlines()
    assert int(count.split()[0]) > 200
