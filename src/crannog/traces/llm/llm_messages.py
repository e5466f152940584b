"""The messages of a span in one form, from the conventions of OpenTelemetry, OpenInference and others.

Taken from the first of these that a span has: the attributes `gen_ai.input.messages` and `gen_ai.output.messages`, the same on an
event, an event for each message, an attribute for each part (`llm.input_messages.0.message.role`, `gen_ai.prompt.0.role`), and
the columns `input` and `output`. What was sent is any text: nothing here raises because of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from crannog.api.traces import Span
from crannog.api.traces.messages import Message, MessagePart
from crannog.formats.json_values import to_lossless_json

_MAX_SEGMENTS = 16
_MAX_NESTING = 100
_ROLES_BY_EVENT = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE = "gen_ai.choice"
EVENT_NAMES = (*_ROLES_BY_EVENT, _CHOICE, "gen_ai.client.inference.operation.details", "gen_ai.content.prompt", "gen_ai.content.completion")  # fmt: skip
_WHOLE = {
    "input": ("gen_ai.input.messages", "gen_ai.prompt"),
    "output": ("gen_ai.output.messages", "gen_ai.completion"),
}
_FLAT = {
    "input": ("llm.input_messages", "gen_ai.prompt"),
    "output": ("llm.output_messages", "gen_ai.completion"),
}
_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "refusal"})
_REASONING = frozenset({"reasoning", "thinking"})
_CALLS = frozenset({"tool_call", "tool_use", "function_call", "tool-call", "function"})
_RESULTS = frozenset({"tool_call_response", "tool_result", "function_call_output", "tool-result", "tool_return"})
_MEDIA = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "video", "file", "document", "blob", "uri"}
)


def messages_of(span: Span) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the messages that went into a span, and those that came out."""
    attributes = span.attributes
    for event in span.events:
        # The event has the messages, if the attributes would be too long.
        if any(key in event.attributes for keys in _WHOLE.values() for key in keys):
            attributes = {**event.attributes, **attributes}
    from_events = _event_messages(span)
    found = {
        side: _whole(attributes, side)
        or from_events[side]
        or _flat(attributes, side)
        or _payload(getattr(span, side), side)
        for side in ("input", "output")
    }
    system = _parts(_parsed(attributes.get("gen_ai.system_instructions")))
    before = [Message("system", system)] if system else []
    return (*before, *found["input"]), tuple(found["output"])


def _whole(attributes: Mapping[str, Any], side: str) -> list[Message]:
    for key in _WHOLE[side]:
        messages = _messages(_parsed(attributes.get(key)), side)
        if messages:
            return messages
    return []


def _event_messages(span: Span) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {"input": [], "output": []}
    for event in span.events:
        body = {key: _parsed(value) for key, value in event.attributes.items()}
        if event.name == _CHOICE:
            message = body.get("message")
            inner = message if isinstance(message, dict) else {"content": message} if message is not None else {}
            found["output"].append(_message({"role": "assistant", **body, **inner}, "output"))
        elif event.name in _ROLES_BY_EVENT:
            found["input"].append(_message({"role": _ROLES_BY_EVENT[event.name], **body}, "input"))
    return found


def _flat(attributes: Mapping[str, Any], side: str) -> list[Message]:
    """Return messages that were sent as an attribute for each part."""
    for prefix in _FLAT[side]:
        nested = _nested((key, value) for key, value in attributes.items() if key.startswith(f"{prefix}."))
        for name in prefix.split("."):
            nested = nested.get(name, {}) if isinstance(nested, dict) else {}
        messages = [_message(_unwrapped(item), side) for item in _listed(nested) if isinstance(item, dict)]
        if messages:
            return messages
    return []


def _nested(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return attributes whose keys have dots as nested objects."""
    root: dict[str, Any] = {}
    for key, value in pairs:
        *path, last = key.split(".", _MAX_SEGMENTS)
        node = root
        for name in path:
            child = node.setdefault(name, {})
            if not isinstance(child, dict):
                break  # a value has the place of an object
            node = child
        else:
            node.setdefault(last, value)
    return root


def _listed(value: Any) -> list[Any]:
    """Return the items of a list, or of an object with numbers for keys."""
    if isinstance(value, dict):
        numbers = [key for key in value if key.isascii() and key.isdecimal() and len(key) < 9]
        return [value[key] for key in sorted(numbers, key=int)]
    return value if isinstance(value, list) else []


def _unwrapped(item: dict[str, Any]) -> dict[str, Any]:
    """Return a message of OpenInference without its wrappers."""
    message = item.get("message", item)
    if not isinstance(message, dict):
        return item
    found = dict(message)
    contents = [one.get("message_content", one) for one in _listed(message.get("contents")) if isinstance(one, dict)]
    if contents:
        found["content"] = contents
    calls = [one.get("tool_call", one) for one in _listed(message.get("tool_calls")) if isinstance(one, dict)]
    if calls:
        found["tool_calls"] = calls
    return found


def _payload(stored: str | None, side: str) -> list[Message]:
    """Return the messages of the column `input` or `output`, which has any JSON."""
    if stored is None:
        return []
    value = _parsed(stored, is_json=True)
    return _messages(value, side) or [Message(side, _parts(value))]


def _messages(value: Any, side: str) -> list[Message]:
    """Return the messages of a list, or of an object that has one; empty if it is something else."""
    if isinstance(value, dict):
        for name in ("messages", "choices"):
            if isinstance(value.get(name), list):
                return _messages(value[name], side)
        value = [value]
    if not isinstance(value, list):
        return []
    inner = [
        one.get("message") if isinstance(one, dict) and isinstance(one.get("message"), dict) else one for one in value
    ]
    messages = [one for one in inner if isinstance(one, dict) and ("role" in one or "parts" in one)]
    return [_message(one, side) for one in messages] if len(messages) == len(inner) else []


def _message(value: Mapping[str, Any], side: str) -> Message:
    role = _text(value.get("role")) or side
    parts = _parts(value["parts"]) if isinstance(value.get("parts"), list) else ()
    if not parts:
        content = _parsed(value.get("content")) if role == "tool" else value.get("content")
        call_id = _text(value.get("tool_call_id")) or _text(value.get("id"))
        if role == "tool" and content is not None and not _has_types(content):
            parts = (MessagePart("tool_result", id=call_id, name=_text(value.get("name")), value=content),)
        else:
            parts = _parts(content)
    thought = value.get("reasoning_content")
    before = (MessagePart("reasoning", text=thought),) if isinstance(thought, str) and thought else ()
    calls = [_call(one) for one in _listed(_parsed(value.get("tool_calls"))) if isinstance(one, dict)]
    if isinstance(value.get("function_call"), dict):
        calls.append(_call(value["function_call"]))
    return Message(role, (*before, *parts, *calls), _text(value.get("name")), _text(value.get("finish_reason")))


def _has_types(content: Any) -> bool:
    return (
        isinstance(content, list) and bool(content) and all(isinstance(one, dict) and "type" in one for one in content)
    )


def _parts(content: Any) -> tuple[MessagePart, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, list):
        return tuple(_iterated_parts(content))
    return (_part(content),)


def _iterated_parts(content: list[Any]) -> Iterator[MessagePart]:
    if not all(isinstance(one, (str, dict)) for one in content):
        yield MessagePart("json", value=content)
        return
    for one in content:
        yield _part(one)


def _part(value: Any) -> MessagePart:
    if isinstance(value, str):
        return MessagePart("text", text=value)
    if not isinstance(value, dict):
        return MessagePart("json", value=value)
    kind = value.get("type")
    kind = kind if isinstance(kind, str) else "text" if isinstance(value.get("text"), str) else ""
    if kind in _TEXTS or kind in _REASONING:
        text = next((value[name] for name in ("content", "text", "thinking", "refusal") if isinstance(value.get(name), str)), None)  # fmt: skip
        if text is not None:
            return MessagePart("reasoning" if kind in _REASONING else "text", text=text)
    if kind in _CALLS:
        return _call(value)
    if kind in _RESULTS:
        names = ("response", "result", "content", "output")
        result = next((value[name] for name in names if value.get(name) is not None), None)
        call_id = next((value[name] for name in ("id", "tool_call_id", "tool_use_id", "call_id", "toolCallId") if name in value), None)  # fmt: skip
        name = _text(value.get("name")) or _text(value.get("toolName"))
        return MessagePart("tool_result", id=_text(call_id), name=name, value=_parsed(result))
    if kind in _MEDIA:
        return _media(value)
    return MessagePart("json", value=value)


def _call(value: Mapping[str, Any]) -> MessagePart:
    function = value["function"] if isinstance(value.get("function"), dict) else value
    arguments = next(
        (function[name] for name in ("arguments", "input", "args") if function.get(name) is not None), None
    )
    name = _text(function.get("name")) or _text(function.get("toolName"))
    call_id = next((value[key] for key in ("id", "call_id", "toolCallId") if key in value), None)
    return MessagePart("tool_call", id=_text(call_id), name=name, value=_parsed(arguments))


def _media(value: Mapping[str, Any]) -> MessagePart:
    media_type = next((_text(value[key]) for key in ("mime_type", "media_type", "modality") if key in value), None)
    uri = _uri(value)
    return MessagePart("media", uri=uri, media_type=media_type or _text(value.get("type")))


def _uri(value: Any) -> str | None:
    """Return the address of a picture or file, wherever it is; not one that has the data itself."""
    for _ in range(4):
        if isinstance(value, str):
            return value if not value.startswith("data:") and len(value) <= 4_096 else None
        if not isinstance(value, dict):
            return None
        value = next(
            (value[key] for key in ("uri", "url", "image_url", "image", "source", "file_id") if key in value), None
        )
    return None


def _parsed(value: Any, *, is_json: bool = False) -> Any:
    """Return the object or array that a text has as JSON; other values as they are."""
    if not isinstance(value, str) or (not is_json and value[:1] not in ("{", "[")):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if _is_shallow(found) else value


def _is_shallow(value: Any) -> bool:
    """Return whether a value is nested so little that every reader can follow it."""
    level = [value]
    for _ in range(_MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return True
    return False


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def shortened(messages: Iterable[Message], max_chars: int) -> tuple[Message, ...]:
    """Return messages with long texts cut; a long value becomes the beginning of its JSON."""
    return tuple(replace(one, parts=tuple(_shortened(part, max_chars) for part in one.parts)) for one in messages)


def _shortened(part: MessagePart, max_chars: int) -> MessagePart:
    if part.text is not None:
        rest = len(part.text) - max_chars
        return replace(part, text=part.text[:max_chars], cut=rest) if rest > 0 else part
    if part.value is None or isinstance(part.value, (bool, int, float)):
        return part
    text = part.value if isinstance(part.value, str) else json.dumps(to_lossless_json(part.value), ensure_ascii=False)
    rest = len(text) - max_chars
    return replace(part, value=None, text=text[:max_chars], cut=rest) if rest > 0 else part
