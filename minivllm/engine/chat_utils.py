"""Chats: messages as OpenAI's clients write them, made into what a chat template takes.

Must not know: tokens.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from minivllm.errors import InputError

# type of a content part -> its key; vLLM has more, of images, sounds and videos
TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
CONTENT_FORMATS = ("auto", "string", "openai")


@dataclass(frozen=True, slots=True)
class ChatParams:
    """How a conversation becomes a text.

    vLLM: renderers/params.py::ChatParams (simplified: text only)
    """

    chat_template: str | None = None  # Jinja, or the name of one of the model's templates; None: the model's default
    chat_template_content_format: str = "auto"  # "string", "openai" (a list of parts); auto: what the template reads
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)  # what the template gets beside the messages

    def __post_init__(self) -> None:
        if not isinstance(self.chat_template, str | None):
            raise InputError(f"chat_template={self.chat_template!r} must be a string, the template itself.")
        if self.chat_template_content_format not in CONTENT_FORMATS:
            raise InputError(
                f"chat_template_content_format={self.chat_template_content_format!r} is not one of "
                f"{', '.join(CONTENT_FORMATS)}."
            )
        if not isinstance(self.chat_template_kwargs, dict):
            raise InputError(f"chat_template_kwargs={self.chat_template_kwargs!r} must be a dict.")
        for name in ("chat_template", "tokenize"):
            if name in self.chat_template_kwargs:
                raise InputError(f"chat_template_kwargs may not hold {name!r}. Give a template as chat_template=.")

    def with_kwargs(self, **kwargs: Any) -> "ChatParams":
        """These, with more for the template; None is nothing.

        vLLM: renderers/params.py::merge_kwargs
        """
        given = {name: value for name, value in kwargs.items() if value is not None}
        return replace(self, chat_template_kwargs=self.chat_template_kwargs | given)


ANSWER_NEXT = ChatParams().with_kwargs(add_generation_prompt=True)


def parse_chat_messages(messages: Sequence[Any], content_format: str) -> list[dict[str, Any]]:
    """The messages as a template takes them, in dicts of its own. Raises InputError for what is no message.

    content_format: "string", in which parts are joined with line breaks, or "openai", in which all content is parts.

    vLLM: entrypoints/chat_utils.py::parse_chat_messages (simplified: text only)
    """
    return [_parse_chat_message(message, content_format) for message in messages]


def _parse_chat_message(message: Any, content_format: str) -> dict[str, Any]:
    """vLLM: entrypoints/chat_utils.py::_parse_chat_message_content"""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(f"The chat message {message!r} must be a dict with the keys role and content.")
    role, content = message["role"], message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list | tuple | None):
        raise InputError(f"The content of {message!r} must be a string, a list of text parts, or None.")
    texts = [text for text in map(_parse_part, content or ()) if text]
    parsed: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    if content_format == "openai" and role != "tool":
        parsed["content"] = [{"type": "text", "text": text} for text in texts]
    if role == "assistant":
        if message.get("tool_calls"):
            parsed["tool_calls"] = [_parse_tool_call(call) for call in message["tool_calls"]]
        if message.get("reasoning") is not None:
            parsed["reasoning"] = parsed["reasoning_content"] = message["reasoning"]
    elif role == "tool" and "tool_call_id" in message:
        parsed["tool_call_id"] = message["tool_call_id"]
    elif role == "developer":
        parsed["tools"] = message.get("tools")
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            parsed[key] = message[key]
    return parsed


def _parse_part(part: Any) -> str | None:
    """The text of a content part; None for one that has none.

    vLLM: entrypoints/chat_utils.py::_parse_chat_message_content_part
    """
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in TEXT_PARTS:
        raise InputError(f"The content part {part!r} is not covered. Covered types: {', '.join(TEXT_PARTS)}.")
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str | None):
        raise InputError(f"The content part {part!r} must have a text under {TEXT_PARTS[kind]!r}.")
    return text


def _parse_tool_call(call: Any) -> dict[str, Any]:
    """A call with its arguments as a dict, which is how templates take them.

    vLLM: entrypoints/chat_utils.py::_postprocess_messages
    """
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or call.get("type", "function") != "function":
        raise InputError(f"The tool call {call!r} must be a dict with type 'function' and the key function.")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise InputError(f"The arguments of the tool call {call!r} are not valid JSON ({error}).") from error
    return {**call, "function": {**function, "arguments": arguments}}


@lru_cache(maxsize=32)
def detect_content_format(chat_template: str) -> str:
    """ "openai" for a template that loops over the parts of a message's content, else "string".

    vLLM: renderers/hf.py::_detect_content_format (simplified: by the name `content` alone)
    """
    import jinja2
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        tree = _compile_jinja_template(chat_template).environment.parse(chat_template)
    except jinja2.TemplateError:
        return "string"  # rendering it will say what is wrong
    return "openai" if any(_is_content(loop.iter) for loop in tree.find_all(jinja2.nodes.For)) else "string"


def _is_content(node: Any) -> bool:
    """Whether a template's expression is `content`, or `message.content` or `message["content"]`, these filtered or cut
    too."""
    import jinja2

    if isinstance(node, jinja2.nodes.Name):
        return node.name == "content"
    while isinstance(node, jinja2.nodes.Filter | jinja2.nodes.Test) or (
        isinstance(node, jinja2.nodes.Getitem) and isinstance(node.arg, jinja2.nodes.Slice)
    ):
        node = node.node
    if isinstance(node, jinja2.nodes.Getitem):
        return isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == "content"
    return isinstance(node, jinja2.nodes.Getattr) and node.attr == "content"
