"""The Parquet layout of a table: one set of options, stored as table properties and used by every Spark write.

Row groups are small because bloom filters only pay off there. A column chunk that is fully dictionary-encoded
gets no bloom filter, so columns with a bloom filter have no dictionary; with Parquet 2 pages they, and all
times and numbers, get delta encodings.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

ROW_GROUP_ROWS = 32_768
BLOOM_FPP = 0.01
ID_BLOOM_FPP = 0.0002
"""For binary ids, which are searched for many values at once: each of them may hit the filter of each row group."""


def bloom_columns(schema: pa.Schema, key: Sequence[str] = (), requested: Sequence[str] = ()) -> list[str]:
    """Return the columns with a bloom filter: text columns named *_id or *_key, text keys, and those requested."""
    return [
        field.name
        for field in schema
        if field.name in requested
        or (pa.types.is_string(field.type) and (field.name.endswith(("_id", "_key")) or field.name in key))
    ]


def statistics_columns(
    schema: pa.Schema, key: Sequence[str], partition_by: Sequence[str], cluster_by: Sequence[str]
) -> list[str]:
    """Return the columns whose minimum and maximum the log stores for pruning.

    These are times, dates and numbers at the top level, and the key and clustering columns of any flat type; long
    free text would only bloat the log, and put personal data into it.
    """
    wanted = {*key, *cluster_by}

    def prunes(field: pa.Field) -> bool:
        kind = field.type
        if field.name in partition_by or pa.types.is_boolean(kind) or pa.types.is_binary(kind):
            return False
        if field.name in wanted:
            return not pa.types.is_nested(kind)
        return bool(
            pa.types.is_temporal(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
        )

    return [field.name for field in schema if prunes(field)]


def parquet_options(schema: pa.Schema, blooms: Sequence[str]) -> dict[str, str]:
    """Return the options for Spark's Parquet writer, also valid as Delta table properties."""
    options = {
        "parquet.compression": "zstd",
        "parquet.compression.codec.zstd.level": "3",
        "parquet.block.row.count.limit": str(ROW_GROUP_ROWS),
        # Parquet 2 adds delta encodings; Polars cannot read the one for long decimals.
        "parquet.writer.version": "PARQUET_1_0"
        if any(_has_long_decimal(field.type) for field in schema)
        else "PARQUET_2_0",
        # Adaptive: a small row group gets a small filter, where a fixed number of values would make it 64 KiB.
        "parquet.bloom.filter.adaptive.enabled": "true",
        "parquet.bloom.filter.max.bytes": str(64 * 1024),
    }
    for field in schema:
        if pa.types.is_timestamp(field.type):
            options[f"parquet.enable.dictionary#{field.name}"] = "false"
    for name in blooms:
        options[f"parquet.bloom.filter.enabled#{name}"] = "true"
        is_binary = pa.types.is_binary(schema.field(name).type)
        options[f"parquet.bloom.filter.fpp#{name}"] = f"{ID_BLOOM_FPP if is_binary else BLOOM_FPP:g}"
        options[f"parquet.enable.dictionary#{name}"] = "false"
    return options


def _has_long_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision > 18)
    return any(_has_long_decimal(kind.field(place).type) for place in range(kind.num_fields))
