"""The column `search_blob`: a span's names and attributes as words between bars, so that one `contains` finds a whole word.

    |service| |span name| |scope| |status message| |key=value| … |event name| …

A bar inside a word is written `\\p`, a backslash `\\\\`, and an equals sign in anything but a value `\\e`. So
`k=1` is not found in `k=10`, and no value can be made to look like another attribute.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

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
