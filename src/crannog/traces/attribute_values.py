"""Attributes as the span table stores them: as JSON text that keeps their OTLP types, and as words of the search text.

Text, integers, booleans, arrays and maps are plain JSON. A double always has a point or an exponent, so that `1` and `1.0`
differ. Values without a JSON form are marked as in `crannog.formats.json_values`.

The search text (column `search_blob`) has a span's names and attributes as words between bars, so that one `contains` finds
a whole word:

    |service| |span name| |scope| |status message| |key=value| … |event name| …

A bar inside a word is written `\\p`, a backslash `\\\\`, and an equals sign in anything but a value `\\e`. So
`k=1` is not found in `k=10`, and no value can be made to look like another attribute.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from crannog.formats.json_values import from_lossless_json

_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def double_json(number: float) -> str:
    """Return the shortest JSON that parses to exactly this number, and never to an integer."""
    if math.isnan(number):
        return '{"$double":"NaN"}'
    if math.isinf(number):
        return '{"$double":"Infinity"}' if number > 0 else '{"$double":"-Infinity"}'
    text = str(pa.scalar(number, pa.float64()).cast(pa.string()).as_py())
    return text if "." in text or "e" in text else text + ".0"


def bytes_json(data: bytes) -> str:
    return f'{{"$bytes":"{base64.b64encode(data).decode()}"}}'


def to_json(value: AnyValue) -> str:
    """Return the JSON of a value; null if it is not set."""
    kind = value.WhichOneof("value")
    if kind is None:
        return "null"
    inner = getattr(value, kind)
    match kind:
        case "string_value":
            return _TO_JSON(inner)
        case "bool_value":
            return "true" if inner else "false"
        case "int_value":
            return str(inner)
        case "double_value":
            return double_json(inner)
        case "bytes_value":
            return bytes_json(inner)
        case "array_value":
            return array_json(map(to_json, inner.values))
        case "kvlist_value":
            return map_json([(pair.key, to_json(pair.value)) for pair in inner.values])
    return f'{{"$strindex":{inner}}}'


def array_json(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


def map_json(pairs: Sequence[tuple[str, str]]) -> str:
    if len({key for key, _ in pairs}) < len(pairs) or (len(pairs) == 1 and pairs[0][0].startswith("$")):
        return f'{{"$map":[{",".join(f"[{_TO_JSON(key)},{text}]" for key, text in pairs)}]}}'
    return f"{{{','.join(f'{_TO_JSON(key)}:{text}' for key, text in pairs)}}}"


def repeated_key_json(texts: Iterable[str]) -> str:
    """Return the JSON of the values of a repeated key."""
    return f'{{"$each":{array_json(texts)}}}'


def text_json(text: str) -> str:
    """Return a text as JSON."""
    return _TO_JSON(text)


def to_python(text: str) -> Any:
    """Return the Python value of a JSON text; the last value of a repeated key."""
    return from_lossless_json(json.loads(text))


def _type_marker(value: dict[str, Any]) -> tuple[str, Any] | None:
    if len(value) == 1:
        [(key, inner)] = value.items()
        if key.startswith("$"):
            return key, inner
    return None


def to_key_values(attributes: Iterable[tuple[str, str | None]]) -> list[KeyValue]:
    """Return stored attributes as OTLP key-values; a repeated key comes out as often as it was received."""
    pairs = []
    for key, text in attributes:
        value = json.loads("null" if text is None else text)
        marker = _type_marker(value) if isinstance(value, dict) else None
        for item in marker[1] if marker is not None and marker[0] == "$each" else [value]:
            pairs.append(KeyValue(key=key, value=_any_value(item)))
    return pairs


def _any_value(value: Any) -> AnyValue:
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    result = AnyValue()
    if isinstance(value, list):
        result.array_value.SetInParent()
        result.array_value.values.extend(map(_any_value, value))
        return result
    match _type_marker(value):
        case "$bytes", data:
            return AnyValue(bytes_value=base64.b64decode(data))
        case "$double", name:
            return AnyValue(double_value=_NOT_FINITE[name])
        case "$strindex", number:
            return AnyValue(string_value_strindex=number)
        case "$map", pairs:
            items = pairs
        case _:
            items = list(value.items())
    result.kvlist_value.SetInParent()
    result.kvlist_value.values.extend(KeyValue(key=key, value=_any_value(item)) for key, item in items)
    return result


_VALUE = (("\\", "\\\\"), ("|", "\\p"))
_NAME = (*_VALUE, ("=", "\\e"))
_VALUE_CHARACTERS, _NAME_CHARACTERS = ("".join(plain for plain, _ in escapes).encode() for escapes in (_VALUE, _NAME))
WORD_SEPARATOR = "| |"


def escaped_name(text: str) -> str:
    """Escape a name (of a service, span, scope, event or attribute key) as in the search text."""
    for character, escaped in _NAME:
        text = text.replace(character, escaped)
    return text


def escaped_value(text: str) -> str:
    """Escape a value, or a text to search for, as in the search text."""
    for character, escaped in _VALUE:
        text = text.replace(character, escaped)
    return text


def attribute_word(key: str, value: str) -> str:
    """Return the word that the search text has exactly if the span has this attribute with this value, as text."""
    return f"|{escaped_name(key)}={escaped_value(value)}|"


def escaped_names(texts: pa.Array) -> pa.Array:
    """Escape names as in the search text."""
    return _escaped(texts, _NAME) if contains_any(texts, _NAME_CHARACTERS) else texts


def escaped_values(texts: pa.Array) -> pa.Array:
    """Escape values as in the search text."""
    return _escaped(texts, _VALUE) if contains_any(texts, _VALUE_CHARACTERS) else texts


def contains_any(texts: pa.Array, characters: bytes) -> bool:
    """Return whether a column has any of these ASCII characters, in one pass over its bytes."""
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return False
    offsets = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, texts.buffers()[1]], offset=texts.offset)
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    content = data.slice(start, end - start).to_pybytes()
    return len(content.translate(None, characters)) < len(content)


def _escaped(texts: pa.Array, escapes: tuple[tuple[str, str], ...]) -> pa.Array:
    for character, escaped in escapes:
        texts = pc.replace_substring(texts, character, escaped)
    return texts


def search_texts(*parts: pa.Array) -> pa.Array:
    """Join the words of each span; null parts are left out."""
    joined = pc.binary_join_element_wise(*parts, WORD_SEPARATOR, null_handling="skip")
    return pc.binary_join_element_wise("|", joined, "|", "")
