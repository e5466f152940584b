"""What the tests of tables share: rows in one comparable form, and the readers that know nothing of Crannog."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.open_table import OpenTable
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime

INSTANT = pa.timestamp("us", tz="UTC")
DAY = dt.timedelta(days=1)
SYSTEM = ("_created_at", "_batch_id", "_date")
_EXACT = decimal.Context(prec=60)


def opened(settings: Settings, **changes: Any) -> Lake:
    """Open the warehouse of `settings`; a second call stands for another process."""
    changed = settings.model_copy(update=changes)
    return Lake(changed.warehouse, settings=changed)


def root(lake: Lake, name: str) -> Path:
    """The Delta root of a table."""
    return Path(lake.operations.warehouse.storage.uri(name.replace(".", "/")))


def engine(table: Table) -> OpenTable:
    """The open table behind a handle."""
    return table._lake.operations.tables.open(table._name)


# -- rows ------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value in a form that is equal exactly when the values are, whichever reader gave it."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(value)
    if isinstance(value, decimal.Decimal):
        return "0" if value == 0 else format(value.normalize(_EXACT), "f")
    if isinstance(value, dt.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return zoned.astimezone(dt.UTC).isoformat(timespec="microseconds")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Mapping):
        return tuple((name, plain(inner)) for name, inner in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        items = list(value)
        # A map: pairs in Arrow, structs of key and value in Polars.
        if items and all(isinstance(item, tuple) and len(item) == 2 for item in items):
            return tuple(sorted((plain(key), plain(inner)) for key, inner in items))
        if items and all(isinstance(item, Mapping) and set(item) == {"key", "value"} for item in items):
            return tuple(sorted((plain(item["key"]), plain(item["value"])) for item in items))
        return tuple(plain(item) for item in items)
    return value


def canonical(rows: pa.Table | Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> list[str]:
    """Rows of the user's columns (or those asked for) in an order of their own, ready to compare."""
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)
    return sorted(
        repr([(name, plain(row[name])) for name in (columns or sorted(row)) if columns or name not in SYSTEM])
        for row in listed
    )


# -- readers that know nothing of Crannog ----------------------------------------------------------------------


def read_delta_rs(path: Path, version: int | None = None) -> pa.Table:
    return DeltaTable(str(path), version=version).to_pyarrow_table()


def read_datafusion(path: Path, where: str | None = None) -> pa.Table:
    """Through delta-rs's own query engine, which skips files by statistics."""
    query = "SELECT * FROM t" + (f" WHERE {where}" if where else "")
    return pa.table(QueryBuilder().register("t", DeltaTable(str(path))).execute(query).read_all())


def read_polars(path: Path, where: pl.Expr | None = None, version: int | None = None) -> pa.Table:
    frame = pl.scan_delta(str(path), version=version)
    return (frame if where is None else frame.filter(where)).collect().to_arrow()


def read_delta_spark(spark: SparkRuntime, path: Path, version: int | None = None) -> pa.Table:
    reader = spark.session().read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(str(path)).toArrow()


def read_everywhere(spark: SparkRuntime, path: Path) -> dict[str, list[str]]:
    """The base as each plain Delta reader sees it."""
    return {
        "delta-rs": canonical(read_delta_rs(path)),
        "delta-rs sql": canonical(read_datafusion(path)),
        "polars": canonical(read_polars(path)),
        "delta-spark": canonical(read_delta_spark(spark, path)),
    }


# -- files -----------------------------------------------------------------------------------------------------


def log_entries(path: Path) -> dict[int, list[dict[str, Any]]]:
    """The actions of every entry of a Delta log, by version."""
    return {
        int(file.stem): [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted((path / "_delta_log").glob("*.json"))
        if file.stem.isdigit()
    }


def actions(path: Path, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every action of one kind with its version, oldest first."""
    for version, entry in log_entries(path).items():
        yield from ((version, action[kind]) for action in entry if kind in action)


def live_files(path: Path) -> list[Path]:
    return sorted(Path(uri.removeprefix("file://")) for uri in DeltaTable(str(path)).file_uris())


def footers(path: Path) -> list[pq.FileMetaData]:
    return [pq.read_metadata(file) for file in live_files(path)]


def every_file(folder: Path) -> dict[str, bytes]:
    """Each file below a folder, hidden ones included, with its bytes."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def readable_versions(path: Path) -> list[int]:
    """The versions that delta-rs can open and read whole."""
    readable = []
    for version in range(DeltaTable(str(path)).version() + 1):
        try:
            read_delta_rs(path, version)
        except Exception:
            continue
        readable.append(version)
    return readable
