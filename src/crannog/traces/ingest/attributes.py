"""Converts OTLP attributes by column: lists of keys and values, as read by ptars, become maps of JSON text.

Creates no Python object per attribute, except for arrays, maps, bytes, non-finite doubles, text with control characters,
and repeated keys.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from crannog.traces.attribute_values import (
    WORD_SEPARATOR,
    array_json,
    bytes_json,
    contains_any,
    double_json,
    escaped_names,
    escaped_values,
    map_json,
    repeated_key_json,
    to_json,
)
from crannog.traces.span_table import ATTRIBUTES

_CONTROL = "".join(map(chr, range(0x20)))
_TO_ESCAPE = ('"\\' + _CONTROL).encode()
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_LEFT_TO_ESCAPE = "[\\x00-\\x1f]"
_INT32 = pa.int32()
_NO_OWNERS, _NO_TEXTS, _NO_BOOLEANS = pa.array([], pa.int64()), pa.array([], pa.string()), pa.array([], pa.bool_())


@dataclass(frozen=True)
class Attributes:
    """The attributes of many owners (spans, resources, events …): one list per owner, as flat columns.

    `json` is what is stored; `text` is the same as text, without quotes and empty for null.
    """

    offsets: pa.Int32Array
    owners: pa.Array
    keys: pa.StringArray
    json: pa.StringArray
    text: pa.StringArray
    is_text: pa.BooleanArray

    @cached_property
    def _encoded_keys(self) -> pa.DictionaryArray:
        return self.keys.dictionary_encode()

    @property
    def key_names(self) -> pa.StringArray:
        """The distinct keys."""
        return self._encoded_keys.dictionary

    def has_key_twice(self) -> bool:
        """Return whether an owner has a key more than once."""
        encoded = self._encoded_keys
        if len(encoded.dictionary) == len(self.keys):
            return False
        places = pc.add(
            pc.multiply(self.owners.cast(pa.int64()), len(encoded.dictionary)), encoded.indices.cast(pa.int64())
        )
        # Similar spans have their attributes in the same order: then the numbers increase, and nothing has to be hashed.
        if pc.all(pc.less(places[:-1], places[1:])).as_py():
            return False
        return bool(pc.count_distinct(places).as_py() < len(self.keys))

    def where(self, codes: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the indexes of attributes whose key has a code, and the codes; `codes` has one for each of `key_names`."""
        found = codes.take(self._encoded_keys.indices)
        places = pc.indices_nonzero(found.is_valid())
        return places, found.take(places)

    def maps(self, mask: pa.Array | None = None) -> pa.MapArray:
        """Return a map per owner, null where `mask` is set."""
        offsets, keys, items = self.offsets, self.keys, self.json
        if len(keys) and self.has_key_twice():
            offsets, keys, items = self._merged()
        return pa.MapArray.from_arrays(offsets, keys, items, type=ATTRIBUTES, mask=mask)

    def _merged(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Merge the values of a repeated key of an owner, at the position of the first."""
        ends = [0]
        keys: list[str] = []
        items: list[str] = []
        bounds, all_keys, texts = self.offsets.to_pylist(), self.keys.to_pylist(), self.json.to_pylist()
        for start, end in itertools.pairwise(bounds):
            found: dict[str, list[str]] = {}
            for place in range(start, end):
                found.setdefault(all_keys[place], []).append(texts[place])
            keys += found
            items += [values[0] if len(values) == 1 else repeated_key_json(values) for values in found.values()]
            ends.append(len(keys))
        return pa.array(ends, _INT32), pa.array(keys, pa.string()), pa.array(items, pa.string())

    def words(self) -> pa.Array:
        """Return the attributes of each owner as words of the search text; null if it has none."""
        if not len(self.keys):
            return pa.nulls(len(self.offsets) - 1, pa.string())
        names = self._encoded_keys
        escaped = escaped_names(names.dictionary)
        keys = self.keys if escaped is names.dictionary else escaped.take(names.indices)
        words = pc.binary_join_element_wise(keys, escaped_values(self.text), "=")
        return words_per_owner(self.offsets, words)


def words_per_owner(offsets: pa.Int32Array, words: pa.Array) -> pa.Array:
    """Join the words of each owner; null if it has none."""
    lists = pa.ListArray.from_arrays(offsets, words)
    joined = pc.binary_join(lists, WORD_SEPARATOR)
    return pc.if_else(pc.equal(lists.value_lengths(), 0), pa.scalar(None, pa.string()), joined)


def attributes_of(lists: pa.ListArray) -> Attributes:
    """Convert the attributes of many owners."""
    pairs = lists.flatten()
    if not len(pairs):
        return Attributes(offsets_of(lists), _NO_OWNERS, _NO_TEXTS, _NO_TEXTS, _NO_TEXTS, _NO_BOOLEANS)
    values = pairs.field("value")
    strings = values.field("string_value")
    as_json, as_text, is_text = texts_json(strings), strings, strings.is_valid()
    if strings.null_count:
        others = _non_text_json(values)
        as_json = pc.coalesce(as_json, others, pa.scalar("null"))
        as_text = pc.coalesce(strings, others, pa.scalar(""))
    return Attributes(offsets_of(lists), pc.list_parent_indices(lists), pairs.field("key"), as_json, as_text, is_text)


def offsets_of(lists: pa.ListArray) -> pa.Int32Array:
    """Return the offsets into the result of `flatten`."""
    offsets = lists.offsets
    first = offsets[0]
    return offsets if first.as_py() == 0 else pc.subtract(offsets, first)


def texts_json(strings: pa.Array) -> pa.Array:
    """Return texts as JSON."""
    return pc.binary_join_element_wise('"', _json_escaped(strings), '"', "")


def _json_escaped(strings: pa.Array) -> pa.Array:
    if not contains_any(strings, _TO_ESCAPE):
        return strings
    for character, escaped in _ESCAPES:
        if contains_any(strings, character.encode()):
            strings = pc.replace_substring(strings, character, escaped)
    if not contains_any(strings, _CONTROL.encode()):
        return strings
    rest = pc.fill_null(pc.match_substring_regex(strings, _LEFT_TO_ESCAPE), False)
    # Escapes of earlier steps are not control characters, so they stay.
    done = [_control_escaped(text) for text in strings.filter(rest).to_pylist()]
    return pc.replace_with_mask(strings, rest, pa.array(done, pa.string()))


def _control_escaped(text: str) -> str:
    return "".join(json.dumps(letter)[1:-1] if letter < " " else letter for letter in text)


def _non_text_json(values: pa.StructArray) -> pa.Array:
    """Return the JSON of the values that are not text; null for the others."""
    count = len(values)
    parts = []
    integers, booleans, doubles = (values.field(f"{name}_value") for name in ("int", "bool", "double"))
    if integers.null_count < count:
        parts.append(integers.cast(pa.string()))
    if booleans.null_count < count:
        parts.append(booleans.cast(pa.string()))
    complex_masks = [
        values.field(name).is_valid()
        for name in ("array_value", "kvlist_value", "bytes_value", "string_value_strindex")
        if values.field(name).null_count < count
    ]
    if doubles.null_count < count:
        finite = pc.fill_null(pc.is_finite(doubles), False)
        parts.append(_scatter(finite, _double_json(doubles.filter(finite))))
        complex_masks.append(pc.and_not(doubles.is_valid(), finite))
    if complex_masks:
        mask = complex_masks[0]
        for other in complex_masks[1:]:
            mask = pc.or_(mask, other)
        if pc.any(mask).as_py():
            parts.append(_scatter(mask, pa.array(map(_complex_json, values.filter(mask).to_pylist()), pa.string())))
    if not parts:
        return pa.nulls(count, pa.string())
    return pc.coalesce(*parts) if len(parts) > 1 else parts[0]


def _complex_json(value: dict[str, Any]) -> str:
    match value:
        case {"array_value": {"values": items}}:
            return array_json(to_json(AnyValue.FromString(item)) for item in items)
        case {"kvlist_value": {"values": items}}:
            pairs = [KeyValue.FromString(item) for item in items]
            return map_json([(pair.key, to_json(pair.value)) for pair in pairs])
        case {"bytes_value": bytes(data)}:
            return bytes_json(data)
        case {"double_value": float(number)}:
            return double_json(number)
    return f'{{"$strindex":{value["string_value_strindex"]}}}'


def _double_json(numbers: pa.Array) -> pa.Array:
    texts = numbers.cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(texts, "[.e]"))
    return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)


def _scatter(mask: pa.Array, texts: pa.Array) -> pa.Array:
    """Return an array with the texts, in order, where `mask` is true, and null elsewhere."""
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return texts.take(pc.if_else(mask, places, pa.scalar(None, pa.int64())))
