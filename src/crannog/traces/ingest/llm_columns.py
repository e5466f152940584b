"""Computes the LLM columns from the attributes of many spans at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from crannog.traces.ingest.attributes import Attributes
from crannog.traces.ingest.llm_dialects import (
    AGGREGATE_MARKERS,
    COLUMN_KEYS,
    COST_COLUMNS,
    COST_PATTERN,
    COUNT_COLUMNS,
    COUNT_PATTERN,
    JSON_KEYS,
    MESSAGE_KEYS,
    MESSAGE_PREFIXES,
    PAYLOAD_COLUMNS,
    QUOTED_PATTERN,
    TOTAL_COLUMNS,
    USAGE_KEYS,
    conversation_json,
    payload_json,
    usage_number,
)

_KEYS = list(dict.fromkeys([*(key for keys in COLUMN_KEYS.values() for key in keys), *AGGREGATE_MARKERS]))
_KEY_SET = pa.array(_KEYS)
_RANKS = {
    name: pa.array([keys.index(key) if key in keys else None for key in _KEYS], pa.int64())
    for name, keys in COLUMN_KEYS.items()
}
"""For each of `_KEYS`: its rank among the keys of a column, null if it is not one of them."""


def _ranks_of(wanted: frozenset[str]) -> dict[str, pa.Array]:
    """Return the ranks of these keys in each column that has any of them."""
    ranks = {name: [rank for rank, key in enumerate(keys) if key in wanted] for name, keys in COLUMN_KEYS.items()}
    return {name: pa.array(found, pa.int64()) for name, found in ranks.items() if found}


_DETAIL_RANKS, _JSON_RANKS = _ranks_of(USAGE_KEYS), _ranks_of(JSON_KEYS)
_TYPES = {
    name: pa.int64() if name in COUNT_COLUMNS else pa.float64() if name in COST_COLUMNS else pa.string()
    for name in COLUMN_KEYS
}
_VALUES = {key: None if values is None else pa.array(sorted(values)) for key, values in AGGREGATE_MARKERS.items()}


def llm_columns(attributes: Attributes, spans: int) -> dict[str, pa.Array]:
    """Return each column of `COLUMN_KEYS` for `spans` spans, null where no attribute gives it."""
    columns: dict[str, pa.Array] = {name: pa.nulls(spans, kind) for name, kind in _TYPES.items()}
    codes = pc.index_in(attributes.key_names, value_set=_KEY_SET)
    if codes.null_count < len(codes):
        places, found = attributes.where(codes)
        span_indexes = pa.array(range(spans), attributes.owners.type)
        present = {_KEYS[code] for code in codes.drop_null().to_pylist()}
        for name, keys in COLUMN_KEYS.items():
            if not present.isdisjoint(keys):
                ranks = _RANKS[name].take(found)
                has_key = ranks.is_valid()
                columns[name] = _column(name, attributes, places.filter(has_key), ranks.filter(has_key), span_indexes)
        _move_totals(columns, attributes, present, span_indexes)
    names = attributes.key_names.to_pylist()
    if any(key.startswith(MESSAGE_PREFIXES) for key in names):
        _add_conversations(columns, attributes, names)
    return columns


def _column(name: str, attributes: Attributes, places: pa.Array, ranks: pa.Array, span_indexes: pa.Array) -> pa.Array:
    texts = _texts(name, attributes.text.take(places), ranks)
    pattern = COUNT_PATTERN if name in COUNT_COLUMNS else COST_PATTERN if name in COST_COLUMNS else None
    usable = pc.not_equal(texts, "") if pattern is None else pc.match_substring_regex(texts, pattern)
    if not pc.all(usable).as_py():
        places, ranks, texts = places.filter(usable), ranks.filter(usable), texts.filter(usable)
    owners = attributes.owners.take(places)
    # The lowest rank wins, and the last value of a repeated key.
    order = pc.subtract(pc.multiply(ranks, 1 << 40), places.cast(pa.int64()))
    best = pa.table([owners, order], names=["owner", "order"]).group_by("owner").aggregate([("order", "min")])
    best_index = pc.index_in(order, value_set=best["order_min"].combine_chunks())
    chosen = pc.indices_nonzero(best_index.is_valid())
    values: pa.Array = texts.take(chosen)
    if name in COUNT_COLUMNS:
        values = pc.replace_substring_regex(values, r"\.0$", "").cast(pa.int64())
    elif name in COST_COLUMNS:
        values = values.cast(pa.float64())
    elif name in PAYLOAD_COLUMNS:
        is_text = attributes.is_text.take(places.take(chosen)).to_pylist()
        is_json = pc.is_in(ranks.take(chosen), value_set=_JSON_RANKS[name]).to_pylist()
        given = zip(values.to_pylist(), is_text, is_json, strict=True)
        values = pa.array([payload_json(text, is_text=flag, is_json=other) for text, flag, other in given], pa.string())
    return values.take(pc.index_in(span_indexes, value_set=owners.take(chosen)))


def _texts(name: str, texts: pa.Array, ranks: pa.Array) -> pa.Array:
    """Return the texts for a column: numbers from usage objects, unquoted text from JSON strings."""
    if name in _DETAIL_RANKS:
        mask = pc.is_in(ranks, value_set=_DETAIL_RANKS[name])
        if pc.any(mask).as_py():
            numbers = [usage_number(text, name) for text in texts.filter(mask).to_pylist()]
            texts = pc.replace_with_mask(texts, mask, pa.array(numbers, pa.string()))
    elif name in _JSON_RANKS and name not in PAYLOAD_COLUMNS:
        mask = pc.is_in(ranks, value_set=_JSON_RANKS[name])
        if pc.any(mask).as_py():
            texts = pc.if_else(mask, pc.replace_substring_regex(texts, QUOTED_PATTERN, r"\1"), texts)
    return texts


def _move_totals(
    columns: dict[str, pa.Array], attributes: Attributes, present: set[str], span_indexes: pa.Array
) -> None:
    """Move the values of spans that stand for several calls to the columns of totals."""
    marked = [_marked_spans(attributes, key, values) for key, values in _VALUES.items() if key in present]
    moved = [name for name in TOTAL_COLUMNS.values() if columns[name].null_count < len(span_indexes)]
    if not marked or not moved:
        return
    is_total = pc.is_in(span_indexes, value_set=pa.concat_arrays(marked))
    for total, own in TOTAL_COLUMNS.items():
        if own in moved:
            totals = pc.coalesce(columns[total], columns[own])
            columns[total] = pc.if_else(is_total, totals, columns[total])
            columns[own] = pc.if_else(is_total, pa.scalar(None, columns[own].type), columns[own])


def _marked_spans(attributes: Attributes, key: str, values: pa.Array | None) -> pa.Array:
    """Return the spans that have an attribute with one of these values; with any value if None."""
    places, _ = attributes.where(pc.if_else(pc.equal(attributes.key_names, key), 1, pa.scalar(None, pa.int64())))
    if values is not None:
        places = places.filter(pc.is_in(attributes.text.take(places), value_set=values))
    return attributes.owners.take(places)


def _add_conversations(columns: dict[str, pa.Array], attributes: Attributes, names: list[str]) -> None:
    marked = pa.array([1 if name.startswith(MESSAGE_PREFIXES) else None for name in names], pa.int8())
    places, _ = attributes.where(marked)
    parts: dict[int, list[tuple[str, str, bool]]] = {}
    listed = (
        column.take(places).to_pylist()
        for column in (attributes.owners, attributes.keys, attributes.text, attributes.is_text)
    )
    for owner, key, text, is_text in zip(*listed, strict=True):
        parts.setdefault(owner, []).append((key, text, is_text))
    for name, pattern in MESSAGE_KEYS.items():
        values = columns[name].to_pylist()
        for owner, found in parts.items():
            if values[owner] is None:
                values[owner] = conversation_json(found, pattern)
        columns[name] = pa.array(values, pa.string())
