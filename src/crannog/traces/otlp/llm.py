"""The columns of the LLM dialects, taken from many spans' attributes at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from crannog.traces.dialects import COUNT, COUNTS, DIALECTS, MESSAGE_PREFIXES, MESSAGES, PAYLOADS, conversation, payload
from crannog.traces.otlp.attributes import Attributes

_KEYS = [(key, column, rank) for column, keys in DIALECTS.items() for rank, key in enumerate(keys)]
_KEY_SET = pa.array([key for key, _, _ in _KEYS])
_COLUMN_OF = pa.array([list(DIALECTS).index(column) for _, column, _ in _KEYS], pa.int32())
_RANK_OF = pa.array([rank for _, _, rank in _KEYS], pa.int64())


def llm_columns(attributes: Attributes, spans: int) -> dict[str, pa.Array]:
    """Return each column of `DIALECTS` for `spans` spans, null where no attribute gives it."""
    columns = {name: pa.nulls(spans, pa.int64() if name in COUNTS else pa.string()) for name in DIALECTS}
    codes = pc.index_in(attributes.key_names, value_set=_KEY_SET)
    if codes.null_count < len(codes):
        places, found = attributes.where(codes)
        belongs = _COLUMN_OF.take(found)
        everyone = pa.array(range(spans), attributes.owners.type)
        for number, name in enumerate(DIALECTS):
            mine = pc.equal(belongs, number)
            if pc.any(mine).as_py():
                columns[name] = _column(name, attributes, places.filter(mine), _RANK_OF.take(found.filter(mine)), everyone)
    names = attributes.key_names.to_pylist()
    if any(key.startswith(MESSAGE_PREFIXES) for key in names):
        _add_conversations(columns, attributes, names)
    return columns


def _column(name: str, attributes: Attributes, places: pa.Array, ranks: pa.Array, everyone: pa.Array) -> pa.Array:
    texts = attributes.text.take(places)
    usable = pc.match_substring_regex(texts, COUNT) if name in COUNTS else pc.not_equal(texts, "")
    if not pc.all(usable).as_py():
        places, ranks, texts = places.filter(usable), ranks.filter(usable), texts.filter(usable)
    owners = attributes.owners.take(places)
    # The lowest rank wins, and of a key sent twice the last.
    order = pc.subtract(pc.multiply(ranks, 1 << 40), places.cast(pa.int64()))
    best = pa.table([owners, order], names=["owner", "order"]).group_by("owner").aggregate([("order", "min")])
    kept = pc.index_in(order, value_set=best["order_min"].combine_chunks())
    chosen = pc.indices_nonzero(kept.is_valid())
    values: pa.Array = texts.take(chosen)
    if name in COUNTS:
        values = pc.replace_substring_regex(values, r"\.0$", "").cast(pa.int64())
    elif name in PAYLOADS:
        is_text = attributes.is_text.take(places.take(chosen)).to_pylist()
        values = pa.array([payload(text, is_text=flag) for text, flag in zip(values.to_pylist(), is_text, strict=True)], pa.string())
    return values.take(pc.index_in(everyone, value_set=owners.take(chosen)))


def _add_conversations(columns: dict[str, pa.Array], attributes: Attributes, names: list[str]) -> None:
    marked = pa.array([1 if name.startswith(MESSAGE_PREFIXES) else None for name in names], pa.int8())
    places, _ = attributes.where(marked)
    parts: dict[int, list[tuple[str, str, bool]]] = {}
    listed = (column.take(places).to_pylist() for column in (attributes.owners, attributes.keys, attributes.text, attributes.is_text))
    for owner, key, text, is_text in zip(*listed, strict=True):
        parts.setdefault(owner, []).append((key, text, is_text))
    for name, pattern in MESSAGES.items():
        values = columns[name].to_pylist()
        for owner, found in parts.items():
            if values[owner] is None:
                values[owner] = conversation(found, pattern)
        columns[name] = pa.array(values, pa.string())
