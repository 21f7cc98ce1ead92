"""Chats as OpenAI's clients write them, other templates, and how prompts are cut. What is expected here is what vLLM
0.22.0 made of the same calls.
"""

from typing import Any

import pytest
from engine.helpers import greedy

from minivllm import LLM, SamplingParams
from minivllm.engine.chat_utils import detect_content_format
from minivllm.errors import InputError

FEW = SamplingParams(temperature=0, max_tokens=1)
# shows all that a template can get of a message
SHOW = (
    "{% for m in messages %}[{{m.role}}|{{m.content}}|{{m.name}}|{{m.tool_calls}}|{{m.tool_call_id}}|{{m.reasoning}}]"
    "{% endfor %}{% if tools %}T{{tools}}{% endif %}{% if add_generation_prompt %}G{% endif %}{{ extra }}"
)
PARTS = "{% for m in messages %}{% for c in m['content'] %}<{{c.text}}>{% endfor %}{% endfor %}"


def chat_text(llm: LLM, messages: Any, **given: Any) -> str:
    """The text that the conversation became."""
    (output,) = llm.chat(messages, FEW, use_tqdm=False, **given)
    assert output.prompt_token_ids == llm.tokenizer.encode(output.prompt, add_special_tokens=False)
    return output.prompt


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


CONTENTS = {
    "a string": ("Hi", "Hi"),
    "parts": ([{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}], "Hi\nyou"),
    "strings": (["Hi", "you"], "Hi\nyou"),
    "a part of no text": ([{"type": "text", "text": ""}, {"type": "text", "text": None}, "a"], "a"),
    "other types": (
        [
            {"type": "input_text", "text": "a"},
            {"type": "output_text", "text": "b"},
            {"type": "refusal", "refusal": "c"},
            {"type": "thinking", "thinking": "d"},
        ],
        "a\nb\nc\nd",
    ),
    "none": (None, ""),
    "no parts": ([], ""),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_content(local_llm: LLM, name: str) -> None:
    content, text = CONTENTS[name]
    wanted = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert chat_text(local_llm, user(content)) == wanted


def test_content_may_be_missing(local_llm: LLM) -> None:
    assert chat_text(local_llm, [{"role": "user"}], chat_template=SHOW) == "[user|||||]G"


def test_content_as_parts_for_templates_that_want_them(local_llm: LLM) -> None:
    assert chat_text(local_llm, user("ab"), chat_template=PARTS) == "<ab>"
    assert chat_text(local_llm, user(["a", "b"]), chat_template=PARTS) == "<a><b>"
    parts = "[user|[{'type': 'text', 'text': 'a'}]||||]G"
    assert chat_text(local_llm, user("a"), chat_template=SHOW, chat_template_content_format="openai") == parts
    assert chat_text(local_llm, user(None), chat_template=SHOW, chat_template_content_format="openai").startswith(
        "[user|[]|"
    )
    string = PARTS.replace("c.text", "c")
    assert chat_text(local_llm, user("ab"), chat_template=string, chat_template_content_format="string") == "<a><b>"


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (SHOW, "string"),
        (PARTS, "openai"),
        ("{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% set content=m.content %}{% for c in content %}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for c in m.content[1:] | list %}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for c in content | list %}{% endfor %}{% endfor %}", "string"),
        ("{% for m in messages %}{% for c in m.tool_calls %}{{ m.content }}{% endfor %}{% endfor %}", "string"),
        ("{% for %}", "string"),
    ],
)
def test_the_form_that_a_template_wants(template: str, form: str) -> None:
    assert detect_content_format(template) == form


def test_calls_of_tools_and_their_answers(local_llm: LLM) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    asked = [{"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "so"}]
    called = "[{'type': 'function', 'function': {'name': 'f', 'arguments': {'a': 1}}}]"
    assert chat_text(local_llm, asked, chat_template=SHOW) == f"[assistant|||{called}||so]G"
    assert call["function"]["arguments"] == '{"a": 1}', "the caller's own are left alone"
    answered = [{"role": "tool", "tool_call_id": "1", "content": ["x", "y"]}]
    for form in ("string", "openai"):
        told = chat_text(local_llm, answered, chat_template=SHOW, chat_template_content_format=form)
        assert told == "[tool|x\ny|||1|]G"
    none = [{"role": "assistant", "content": "a", "tool_calls": []}]
    assert chat_text(local_llm, none, chat_template=SHOW) == "[assistant|a||||]G"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert chat_text(local_llm, user("a"), chat_template=SHOW, tools=tools) == f"[user|a||||]T{tools}G"


def test_what_a_template_gets_beside_the_messages(local_llm: LLM) -> None:
    named = [{"role": "user", "content": "a", "name": "bob"}]
    assert chat_text(local_llm, named, chat_template=SHOW) == "[user|a|bob|||]G"
    given = {"extra": "E", "unused": 3, "add_generation_prompt": False}
    assert chat_text(local_llm, user("a"), chat_template=SHOW, chat_template_kwargs=given) == "[user|a||||]GE"


def test_the_last_message_may_be_continued(local_llm: LLM) -> None:
    messages = [*user("a"), {"role": "assistant", "content": "The cap"}]
    wanted = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nThe cap"
    given = {"add_generation_prompt": False, "continue_final_message": True}
    assert chat_text(local_llm, messages, **given) == wanted
    messages[1]["content"] = [{"type": "text", "text": "The cap"}]
    assert chat_text(local_llm, messages, **given) == wanted


def test_conversations_in_tuples(local_llm: LLM) -> None:
    for messages in ((user("a"), user("b")), [tuple(user("a")), tuple(user("b"))]):
        outputs = local_llm.chat(messages, FEW, use_tqdm=False)
        assert [output.prompt[17:18] for output in outputs] == ["a", "b"]
    assert chat_text(local_llm, tuple(user("a"))) == chat_text(local_llm, user("a"))


REFUSED = {
    "a picture": (user([{"type": "image_url", "image_url": {"url": "x"}}]), {}, ["image_url", "Covered types: text"]),
    "a part without a type": (user([{"text": "a"}]), {}, ["{'text': 'a'}", "not covered"]),
    "a number for a part": (user([5]), {}, ["content part 5", "not covered"]),
    "a number for a text": (user([{"type": "text", "text": 5}]), {}, ["must have a text under 'text'"]),
    "a number for content": (user(5), {}, ["content of", "5", "string"]),
    "no role": ([{"content": "a"}], {}, ["{'content': 'a'}", "role"]),
    "a call that is no dict": ([{"role": "assistant", "tool_calls": [5]}], {}, ["tool call 5", "function"]),
    "arguments that are no JSON": (
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{a"}}]}],
        {},
        ["arguments", "not valid JSON"],
    ),
    "both ways to go on": (user("a"), {"continue_final_message": True}, ["continue_final_message"]),
    "a format": (user("a"), {"chat_template_content_format": "x"}, ["'x'", "auto, string, openai"]),
    "a template that is no text": (user("a"), {"chat_template": 5}, ["chat_template=5", "string"]),
    "a broken template": (user("a"), {"chat_template": "{% for %}"}, ["template", "Expected"]),
    "arguments for the template": (user("a"), {"chat_template_kwargs": 5}, ["chat_template_kwargs=5", "dict"]),
    "a template among them": (user("a"), {"chat_template_kwargs": {"chat_template": "a"}}, ["'chat_template'"]),
    "an adapter": (user("a"), {"lora_request": "x"}, ["lora_request='x'", "not covered"]),
    "a processor": (user("a"), {"mm_processor_kwargs": {}}, ["mm_processor_kwargs={}", "not covered"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(local_llm: LLM, name: str) -> None:
    messages, given, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        local_llm.chat(messages, FEW, use_tqdm=False, **given)
    assert all(word in str(caught.value) for word in words), caught.value
    assert greedy(local_llm, [[5, 6]], 2), "the next call is as ever"


# ---------------------------------------------------------------------- how prompts are cut

TEXT = "One two THREE"
IDS = [5, 6, 7, 8, 9, 10]


def prompt_ids(llm: LLM, prompt: Any, **kwargs: Any) -> list[int]:
    (output,) = llm.generate(prompt, FEW, use_tqdm=False, tokenization_kwargs=kwargs)
    return output.prompt_token_ids


@pytest.mark.parametrize(
    ("kwargs", "kept"),
    [
        ({}, slice(None)),
        ({"truncate_prompt_tokens": 4}, slice(-4, None)),
        ({"truncate_prompt_tokens": 4, "truncation_side": "left"}, slice(-4, None)),
        ({"truncate_prompt_tokens": 4, "truncation_side": "right"}, slice(4)),
        ({"truncate_prompt_tokens": 90}, slice(None)),
        ({"truncate_prompt_tokens": -1}, slice(None)),
        ({"max_length": 4, "truncation": True}, slice(-4, None)),
        ({"max_length": 4, "truncation": "longest_first"}, slice(-4, None)),
        ({"max_length": 4, "truncate_prompt_tokens": -1}, slice(-4, None)),
        ({"truncate_prompt_tokens": -2}, slice(None)),
        ({"truncate_prompt_tokens": 4, "truncation": False}, slice(-4, None)),
        ({"truncate_prompt_tokens": 4, "truncation": "do_not_truncate"}, slice(None)),
    ],
)
def test_truncation(local_llm: LLM, kwargs: dict[str, Any], kept: slice) -> None:
    assert prompt_ids(local_llm, TEXT, **kwargs) == local_llm.tokenizer.encode(TEXT)[kept]
    assert prompt_ids(local_llm, IDS, **kwargs) == IDS[kept]
    assert prompt_ids(local_llm, TEXT) == local_llm.tokenizer.encode(TEXT), "nothing stays set in the tokenizer"


def test_other_ways_to_tokenize(local_llm: LLM) -> None:
    kwargs = {"do_lower_case": True, "truncate_prompt_tokens": 3}
    (lower,) = local_llm.generate(TEXT, FEW, use_tqdm=False, tokenization_kwargs=kwargs)
    assert lower.prompt == TEXT.lower() and lower.prompt_token_ids == local_llm.tokenizer.encode(TEXT.lower())[-3:]
    kwargs = {"needs_detokenization": True, "truncate_prompt_tokens": 3}
    (told,) = local_llm.generate(IDS, FEW, use_tqdm=False, tokenization_kwargs=kwargs)
    assert told.prompt == local_llm.tokenizer.decode(IDS) and told.prompt_token_ids == IDS[-3:]
    (chat,) = local_llm.chat(user("a b c"), FEW, use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": 2})
    assert chat.prompt_token_ids == local_llm.tokenizer.encode(chat.prompt)[-2:]


WRONG = {
    "no token": ({"truncate_prompt_tokens": 0}, ["empty"]),
    "more than the context": ({"truncate_prompt_tokens": 97}, ["truncate_prompt_tokens=97", "96"]),
    "no room for an answer": ({"truncate_prompt_tokens": 96}, ["96 tokens", "at most 95"]),
    "too long": ({"max_length": 4}, ["max_length=4", "truncation=True"]),
    "a length of none": ({"max_length": 0}, ["max_length=0", "at least 1"]),
    "a text for a number": ({"max_length": "4"}, ["max_length='4'", "integer"]),
    "a side": ({"truncation_side": "top"}, ["'top'", "left"]),
    "a way to cut": ({"truncation": "only_first"}, ["'only_first'"]),
    "a number for a switch": ({"do_lower_case": 1}, ["do_lower_case=1", "True or False"]),
    "padding": ({"padding": "max_length"}, ["'padding'", "not covered", "truncate_prompt_tokens"]),
    "no dict": (5, ["tokenization_kwargs=5", "dict"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_cut_so(local_llm: LLM, name: str) -> None:
    kwargs, words = WRONG[name]
    with pytest.raises(InputError) as caught:
        local_llm.generate("word " * 60, FEW, use_tqdm=False, tokenization_kwargs=kwargs)
    assert all(word in str(caught.value) for word in words), caught.value
