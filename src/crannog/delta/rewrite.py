"""The only way the base changes: Spark has written files, we verify them, one log entry commits (PROTOCOL 10 and 12).

Before the entry no reader sees anything of it; after it every reader does. Fold, merge, compact, purge, expire, widen
and erase are this operation with different inputs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from crannog.delta.footers import Footer, read_footer
from crannog.delta.log import Base, DataFile, add_action, marker_path, put_entry, remove_action
from crannog.errors import Conflict, Unavailable, VerificationFailed
from crannog.storage import failpoints
from crannog.storage.interface import Storage
from crannog.version import VERSION

_MAX_ATTEMPTS = 1000


class RunAgain(Conflict):
    """Another commit changed what this rewrite depends on; its files are dropped and it restarts from the new head."""


class AlreadyFolded(Conflict):
    """Another fold has reached our sequence; nothing is left to do."""


@dataclass(frozen=True)
class Rewrite:
    """Files to replace in the base `read`, and the details for the log entry."""

    job: str
    operation: str
    read: Base
    removes: Collection[DataFile]
    adds: Collection[DataFile]
    fold_to: int | None = None
    data_change: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    # Every file of the table was rewritten: a file that another commit added meanwhile would be missed.
    whole_table: bool = False


def verify_files(
    storage: Storage, folder: str, paths: Iterable[str], base: Base, *, rows: int, schema: pa.Schema | None = None
) -> list[DataFile]:
    """Verify the files that Spark wrote for a table and make them durable. Raises VerificationFailed if they are wrong.

    Checks the files themselves, outside Spark: their columns and types, their number of rows, nulls in columns that
    are not nullable, one partition per file.
    """
    schema = schema or base.schema
    failpoints.reached("rewrite.files_written")
    footers = []
    for path in sorted(paths):
        try:
            footers.append(read_footer(storage, path, base.statistics_columns))
        except (OSError, pa.ArrowException) as error:
            raise VerificationFailed(f"{path} has no readable footer: {str(error)[:200]}") from error
    footers = [footer for footer in footers if footer.rows]
    for footer in footers:
        _check_schema(footer, schema)
        _check_nulls(footer, schema)
    written = sum(footer.rows for footer in footers)
    if written != rows:
        raise VerificationFailed(
            f"{folder.replace('/', '.')}: expected {rows:,} rows, Spark wrote {written:,};"
            " nothing was committed and the table is unchanged"
        )
    files = [
        DataFile(
            footer.path[len(folder) + 1 :],
            footer.size,
            footer.rows,
            _partition_of(footer, base.partition_by),
            footer.delta_statistics(base.statistics_columns),
        )
        for footer in footers
    ]
    failpoints.reached("rewrite.verified")
    storage.sync(footer.path for footer in footers)
    failpoints.reached("rewrite.synced")
    return files


def commit(storage: Storage, folder: str, rewrite: Rewrite, read_head: Callable[[], Base]) -> int:
    """Put the entry at the next free version and return that version.

    Raises RunAgain if another commit removed a file that this one read, changed the table's definition, or
    folded a part of what this one folds; AlreadyFolded if a fold reached our sequence. After these two nothing of
    ours is committed. After Unavailable it may be: the files must stay then.
    """
    lost = False
    for _ in range(_MAX_ATTEMPTS):
        head = read_head()
        # Before treating a commit as another's: a lost answer may have been a success.
        if lost and (version := _find_own_entry(storage, folder, rewrite, head)) is not None:
            return version
        _check_still_valid(storage, folder, rewrite, head)
        version = head.version + 1
        path = f"{folder}/_delta_log/{version:020}.json"
        try:
            if put_entry(storage, path, _entry(rewrite), must_exist=marker_path(folder, rewrite.read.table_id)):
                return version
        except Unavailable:
            if not storage.exists(path):
                raise
            # A second sync would succeed and prove nothing; a rewritten file is durable once it is synced.
            storage.rewrite_synced(path)
        lost = True
    raise Conflict(
        f"cannot commit to {folder.replace('/', '.')}: other commits won {_MAX_ATTEMPTS} times in a row; try again"
    )


def _find_own_entry(storage: Storage, folder: str, rewrite: Rewrite, head: Base) -> int | None:
    for version in range(rewrite.read.version + 1, head.version + 1):
        path = f"{folder}/_delta_log/{version:020}.json"
        try:
            lines = storage.read(path).splitlines()
        except FileNotFoundError as error:
            raise Unavailable(f"cannot tell whether {rewrite.operation} was committed: {path} was deleted") from error
        for line in lines:
            if json.loads(line).get("commitInfo", {}).get("crannogJob") == rewrite.job:
                return version
    return None


def _check_still_valid(storage: Storage, folder: str, rewrite: Rewrite, head: Base) -> None:
    name = rewrite.operation
    if rewrite.fold_to is not None and head.folded >= rewrite.fold_to:
        raise AlreadyFolded(f"{name}: sequence {rewrite.fold_to} was folded by another process")
    if rewrite.fold_to is not None and head.folded != rewrite.read.folded:
        raise RunAgain(f"{name}: another fold reached sequence {head.folded}")
    if head.definition != rewrite.read.definition:
        raise RunAgain(f"{name}: the table's definition changed")
    if rewrite.whole_table and head.version != rewrite.read.version:
        raise RunAgain(f"{name}: another commit changed the table")
    if not all(storage.exists(f"{folder}/{file.path}") for file in rewrite.adds):
        raise RunAgain(f"{name}: it took so long that vacuum deleted its files")
    gone = [file.path for file in rewrite.removes if file.path not in head.files]
    if gone:
        raise RunAgain(f"{name}: another commit removed {len(gone)} of the files this one read")


def _entry(rewrite: Rewrite) -> list[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": rewrite.operation,
                "operationParameters": {name: json.dumps(value) for name, value in rewrite.parameters.items()},
                "operationMetrics": {name: str(value) for name, value in rewrite.metrics.items()},
                "engineInfo": f"crannog/{VERSION}",
                "crannogJob": rewrite.job,
                "isBlindAppend": not rewrite.removes,
            }
        }
    ]
    # Only a fold may write the folded sequence: a compaction overtaken by a fold would set it back.
    if rewrite.fold_to is not None:
        actions.append({"txn": {"appId": rewrite.read.table_id, "version": rewrite.fold_to, "lastUpdated": now_ms}})
    if rewrite.metadata is not None:
        actions.append(dict(rewrite.metadata))
    actions += [remove_action(file, data_change=rewrite.data_change, now_ms=now_ms) for file in rewrite.removes]
    actions += [add_action(file, data_change=rewrite.data_change, now_ms=now_ms) for file in rewrite.adds]
    return actions


def _check_schema(footer: Footer, schema: pa.Schema) -> None:
    found = {field.name: field.type for field in footer.schema}
    wanted = {field.name: field.type for field in schema}
    if found.keys() != wanted.keys():
        raise VerificationFailed(f"{footer.path} has the columns {', '.join(found)}; the table has {', '.join(wanted)}")
    for name, kind in wanted.items():
        if not _same_type(found[name], kind):
            raise VerificationFailed(f"{footer.path}: column {name} is {found[name]}; the table has {kind}")


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Compare types as Parquet stores them: names of list elements and nullability inside may differ."""
    if pa.types.is_struct(wanted):
        return (
            pa.types.is_struct(found)
            and found.num_fields == wanted.num_fields
            and all(
                a.name == b.name and _same_type(a.type, b.type)
                for a, b in zip(found.fields, wanted.fields, strict=True)
            )
        )
    if pa.types.is_list(wanted):
        return pa.types.is_list(found) and _same_type(found.value_type, wanted.value_type)
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(found)
            and _same_type(found.key_type, wanted.key_type)
            and _same_type(found.item_type, wanted.item_type)
        )
    return bool(found == wanted)


def _check_nulls(footer: Footer, schema: pa.Schema) -> None:
    for column in schema:
        if not column.nullable and footer.nulls.get(column.name, 0):
            raise VerificationFailed(
                f"{footer.path}: column {column.name} has {footer.nulls[column.name]} nulls and is not nullable"
            )


def _partition_of(footer: Footer, partition_by: Collection[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in partition_by:
        empty = footer.nulls.get(name, 0)
        if empty == footer.rows:
            values[name] = None
        elif empty or name not in footer.minimum or footer.minimum[name] != footer.maximum[name]:
            raise VerificationFailed(f"{footer.path}: the file has more than one value of the partition column {name}")
        else:
            values[name] = footer.minimum[name]
    return values
