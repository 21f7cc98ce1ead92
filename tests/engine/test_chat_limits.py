"""A chat template is foreign code: it may not run for ever, nor take all memory, nor reach anything."""

import sys
from typing import Any

import pytest
from faults import fault
from tiny_models import CHAT_TEMPLATE
from traced_runs import llm_of

from minivllm.engine import chat_template
from minivllm.errors import InputError

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def llm() -> Any:
    with llm_of("plain", multiprocess=False) as llm:
        yield llm


def render(llm: Any, template: str) -> Any:
    llm.tokenizer.chat_template = template
    return llm.llm_engine.input_processor.render_chat(MESSAGES)


@fault(
    "Model folders",
    "a chat template that loops",
    how="10**10 turns, a macro that calls itself, numbers that double",
    then="InputError after 10 s (0.5 s in the test) says so; nothing is left switched on",
)
@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{% for a in range(99999) %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}",
        "{% set n = namespace(x=7) %}{% for a in range(99999) %}{% set n.x = n.x * n.x %}{% endfor %}",
    ],
)
def test_a_template_that_loops_is_stopped(llm: Any, monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 0.5)
    with pytest.raises(InputError, match=r"(chat template takes more than 0\.5 s|does not take these messages)"):
        render(llm, template)
    assert sys.gettrace() is None


@fault(
    "Model folders",
    "a chat template that grows",
    how="'a' * 10**10, a width of 2 * 10**9, a text that doubles",
    then="InputError says that it takes more than 512 MiB",
)
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10000000000 }}",
        "{{ ('%2000000000d' % 1)|length }}",
        "{{ 'a'.ljust(2000000000)|length }}",
        "{% set n = namespace(x='aaaaaaaa') %}{% for a in range(99999) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{{ (range(99999)|list * 10000)|length }}",
    ],
)
def test_a_template_that_grows_is_stopped(llm: Any, template: str) -> None:
    with pytest.raises(InputError, match=r"takes more than 512 MiB of memory for these messages\. Format the prompt"):
        render(llm, template)
    assert len(bytearray(600 << 20)) == 600 << 20  # the limit was for the template alone


def test_a_template_that_says_too_much_is_refused(llm: Any) -> None:
    with pytest.raises(InputError, match="makes 40000000 characters of these messages; at most 33554432"):
        render(llm, "{{ 'a' * 40000000 }}")


@pytest.mark.parametrize("template", ["a\n{{ 9 ** 9 ** 9 ** 9 }}", "a\n{% generation %}{{ x**y }}{% endgeneration %}"])
def test_a_power_is_refused(llm: Any, template: str) -> None:
    with pytest.raises(InputError, match=r"computes a power \(\*\*\) in line 2"):
        render(llm, template)


@pytest.mark.parametrize("template", ["a ** b {{ '**' }}{# 2 ** 3 #}", "{{ dict(**{'a': 1}) }}", CHAT_TEMPLATE])
def test_what_only_looks_like_one_is_not(llm: Any, template: str) -> None:
    assert render(llm, template).prompt_token_ids


def test_a_debugger_keeps_its_place(llm: Any) -> None:
    def follow(*_: Any) -> None:
        return None

    sys.settrace(follow)
    try:
        assert render(llm, CHAT_TEMPLATE).prompt_token_ids
        assert sys.gettrace() is follow
    finally:
        sys.settrace(None)
