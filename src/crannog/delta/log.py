"""The base of a table: reads versions of its Delta log through delta-rs, and builds the log entries that we write."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from crannog.delta.checkpoints import remove_damaged
from crannog.delta.schemas import all_nullable, from_delta_json, user_columns
from crannog.errors import Corrupted, NotFound, Refused, Unavailable
from crannog.storage import failpoints
from crannog.storage.interface import Storage

FORMAT_VERSION = 1
LOG = "_delta_log"
# Far below the log's retention of a day: a full load at least this often never misses an entry that was deleted.
# It is a part of paths.
_TABLE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_FULL_LOAD_INTERVAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the base; `path` is relative to the table's folder and not percent-encoded."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, Any] = field(hash=False)
    stats: str | None = field(default=None, hash=False, compare=False)


@dataclass(frozen=True)
class Base:
    """One version of the base. Immutable."""

    version: int
    table_id: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    created_ms: int
    folded: int
    files: Mapping[str, DataFile]
    actions: pa.Table

    @cached_property
    def key(self) -> tuple[str, ...]:
        return tuple(json.loads(self.properties.get("crannog.key", "[]")))

    # One object per version: values derived from a schema are cached by its identity.
    @cached_property
    def user_schema(self) -> pa.Schema:
        """The columns that callers provide."""
        return user_columns(self.schema)

    @cached_property
    def staged_columns(self) -> pa.Schema:
        """The table's columns as staged rows have them, all nullable."""
        return all_nullable(self.schema)

    @cached_property
    def read_schema(self) -> pa.Schema:
        """The schema of reads: fields inside nested columns are nullable, since a null struct has null fields."""
        return pa.schema([field.with_nullable(self.schema.field(field.name).nullable) for field in self.staged_columns])

    @cached_property
    def staged_types(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self.staged_columns}

    @property
    def cluster_by(self) -> tuple[str, ...]:
        return tuple(json.loads(self.properties.get("crannog.clusterBy", "[]")))

    @property
    def cluster_units(self) -> dict[str, int]:
        """Columns of `cluster_by` whose values are sorted in units of this size, by the next column within a unit."""
        return dict(json.loads(self.properties.get("crannog.clusterUnits", "{}")))

    @property
    def distinct_by(self) -> tuple[str, ...]:
        """Columns by whose values compaction removes duplicates, keeping the first row by `newest_by`."""
        return tuple(json.loads(self.properties.get("crannog.distinctBy", "[]")))

    @property
    def newest_by(self) -> tuple[str, ...]:
        """Columns that decide which duplicate to keep: the row with the highest values."""
        return tuple(json.loads(self.properties.get("crannog.newestBy", '["_created_at", "_batch_id"]')))

    @property
    def statistics_columns(self) -> tuple[str, ...]:
        listed = self.properties.get("delta.dataSkippingStatsColumns", "").split(",")
        return tuple(name.strip("`") for name in listed if name)

    @property
    def parquet_options(self) -> dict[str, str]:
        return {name: value for name, value in self.properties.items() if name.startswith("parquet.")}

    @property
    def definition(self) -> tuple[str, str]:
        """What a rewrite depends on besides files: if it changed, the rewrite must run again."""
        return self.table_id, str(self.schema) + json.dumps(dict(self.properties), sort_keys=True)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files.values())


def marker_path(folder: str, table_id: str) -> str:
    """Return the path of the file that exists as long as this very table does; a drop deletes it first."""
    return f"{folder}/_crannog/{table_id}/table.json"


class DeltaLog:
    """The Delta log of one table. Not thread-safe; its owner holds a lock."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self.folder = folder
        self._table: DeltaTable | None = None
        self._base: Base | None = None
        self._next_entry, self._marker = "", ""
        self._checked_at = 0.0

    def entry_path(self, version: int) -> str:
        return f"{self.folder}/{LOG}/{version:020}.json"

    def head(self) -> Base:
        """Return the newest version. Raises NotFound if there is no table, Corrupted with the unreadable file's path.

        Costs two probes when nothing changed: one for the next entry, and one for the table's own marker, which
        tells a table from a dropped one of the same name.
        """
        now = time.time()
        is_fresh = self._base is not None and 0 <= now - self._checked_at < _FULL_LOAD_INTERVAL_S
        if is_fresh and self._base is not None:
            if not self._storage.exists(self._next_entry):
                if self._storage.exists(self._marker):
                    self._checked_at = now
                    return self._base
                self._load()
            else:
                self._update()
        else:
            self._load()
        assert self._table is not None
        base = _base_of(self._table, self.folder)
        self._next_entry, self._marker = self.entry_path(base.version + 1), marker_path(self.folder, base.table_id)
        if not self._storage.exists(self._marker):
            raise NotFound(f"table {self.folder.replace('/', '.')} was dropped")
        self._checked_at, self._base = now, base
        return base

    def at(self, version: int) -> Base:
        """Return an earlier version. Raises NotFound if it can no longer be read."""
        try:
            table = self._open_table(version)
        except (DeltaError, OSError, ValueError) as error:
            raise NotFound(
                f"version {version} of {self.folder.replace('/', '.')} cannot be read; the table's history lists the versions that can"
            ) from error
        return _base_of(table, self.folder)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        self._load()
        assert self._table is not None
        return list(self._table.history(limit))

    def checkpoint(self) -> None:
        """Write a durable checkpoint of the head and delete entries past the log's retention."""
        self._load()
        assert self._table is not None
        try:
            self._table.create_checkpoint()
            names = self._storage.names(f"{self.folder}/{LOG}")
            self._storage.sync(f"{self.folder}/{LOG}/{name}" for name in names if "checkpoint" in name)
            self._table.cleanup_metadata()
        except FileNotFoundError:
            raise  # dropped meanwhile
        except (DeltaError, OSError) as error:
            raise Unavailable(
                f"cannot write a checkpoint of {self.folder}: {' '.join(str(error).split())[:300]}; check the disk and try again"
            ) from error

    @property
    def _uri(self) -> str:
        return self._storage.uri(self.folder)

    def _check_entries(self) -> None:
        # A log reader takes an empty entry to be one without actions.
        for file in self._storage.walk(f"{self.folder}/{LOG}"):
            name = file.path.rpartition("/")[2]
            if not file.size and name.endswith(".json") and name.partition(".")[0].isdigit():
                raise Corrupted(f"log entry {file.path} is empty; restore it from a backup")

    def _load(self) -> None:
        self._check_entries()
        try:
            self._table = self._open_table()
        except TableNotFoundError:
            raise NotFound(
                f"there is no table {self.folder.replace('/', '.')}; list the tables to see which exist"
            ) from None
        except (DeltaError, OSError, ValueError) as error:
            raise self._diagnosed(error) from error

    def _open_table(self, version: int | None = None) -> DeltaTable:
        """Open the table, removing damaged checkpoints that are not needed.

        Tries twice: an erase may delete a checkpoint between the pointer to it and its content.
        """
        options = dict(self._storage.options) or None
        try:
            return DeltaTable(self._uri, version=version, storage_options=options)
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, ValueError):
            remove_damaged(self._storage, f"{self.folder}/{LOG}")
            return DeltaTable(self._uri, version=version, storage_options=options)

    def _update(self) -> None:
        assert self._table is not None
        self._check_entries()
        try:
            self._table.update_incremental()
        except (DeltaError, OSError, ValueError):
            self._load()

    def _diagnosed(self, error: Exception) -> Exception:
        """Return the error that names the file behind a failure of the log reader."""
        names = self._storage.names(f"{self.folder}/{LOG}")
        if not names:
            return NotFound(f"there is no table {self.folder.replace('/', '.')}; list the tables to see which exist")
        if (torn := torn_entry(self._storage, self.folder)) is not None:
            return Corrupted(f"log entry {torn} is not valid; restore it from a backup")
        return Corrupted(f"the log in {self.folder}/{LOG} cannot be read: {str(error)[:300]}")


def torn_entry(storage: Storage, folder: str) -> str | None:
    """Return the path of the newest log entry that is empty or not JSON, or None."""
    for name in sorted(storage.names(f"{folder}/{LOG}"), reverse=True):
        if name.endswith(".json"):
            path = f"{folder}/{LOG}/{name}"
            try:
                lines = storage.read(path).splitlines()
                if not lines or not all(isinstance(json.loads(line), dict) for line in lines):
                    return path
            except FileNotFoundError:
                continue  # deleted since the listing
            except (ValueError, RecursionError):
                return path
    return None


def _base_of(table: DeltaTable, folder: str) -> Base:
    protocol = table.protocol()
    if protocol.min_reader_version > 1:
        raise Refused(
            f"{folder.replace('/', '.')} needs Delta reader version {protocol.min_reader_version}"
            f" ({', '.join(protocol.reader_features or [])}); Crannog supports version 1"
        )
    metadata = table.metadata()
    properties = dict(metadata.configuration)
    version = properties.get("crannog.formatVersion")
    if version is None or not _TABLE_ID.fullmatch(str(metadata.id)):
        raise Refused(f"{folder.replace('/', '.')} is a Delta table that Crannog did not create")
    if not version.isdecimal() or int(version) > FORMAT_VERSION:
        raise Refused(
            f"{folder.replace('/', '.')} has format {version}, this version of Crannog supports {FORMAT_VERSION}; upgrade Crannog"
        )
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=False)).read_all()
    partitions = actions["partition"].to_pylist() if "partition" in actions.column_names else None
    files = {}
    paths, sizes, rows = (actions[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    for index, (path, size, count) in enumerate(zip(paths, sizes, rows, strict=True)):
        decoded = unquote(path)
        files[decoded] = DataFile(decoded, size, count or 0, partitions[index] if partitions else {})
    return Base(
        version=table.version(),
        table_id=str(metadata.id),
        schema=from_delta_json(table.schema().to_json()),
        partition_by=tuple(metadata.partition_columns),
        properties=properties,
        created_ms=metadata.created_time,
        folded=table.transaction_version(str(metadata.id)) or 0,
        files=files,
        actions=actions,
    )


def add_action(file: DataFile, *, data_change: bool, now_ms: int) -> dict[str, Any]:
    """Return the `add` action of a verified file."""
    return {
        "add": {
            "path": quote(file.path, safe="/="),
            "partitionValues": {name: partition_text(value) for name, value in file.partition.items()},
            "size": file.size,
            "modificationTime": now_ms,
            "dataChange": data_change,
            "stats": file.stats,
        }
    }


def remove_action(file: DataFile, *, data_change: bool, now_ms: int) -> dict[str, Any]:
    """Return the `remove` action of a file that the base no longer has."""
    return {
        "remove": {
            "path": quote(file.path, safe="/="),
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": {name: partition_text(value) for name, value in file.partition.items()},
            "size": file.size,
        }
    }


def partition_text(value: Any) -> str | None:
    """Format a partition value as the Delta log does."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def metadata_action(
    *, table_id: str, schema_json: str, partition_by: Sequence[str], properties: Mapping[str, str], created_ms: int
) -> dict[str, Any]:
    """Return the `metaData` action of a table."""
    return {
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json,
            "partitionColumns": list(partition_by),
            "configuration": dict(properties),
            "createdTime": created_ms,
        }
    }


def put_entry(
    storage: Storage, path: str, actions: Iterable[Mapping[str, Any]], *, must_exist: str | None = None
) -> bool:
    """Commit a log entry unless its version is taken; return True if this call did. `must_exist` as in `put_if_absent`."""
    lines = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions) + "\n"
    done = storage.put_if_absent(path, lines.encode(), must_exist=must_exist)
    if done:
        failpoints.reached("rewrite.committed")
    return done
