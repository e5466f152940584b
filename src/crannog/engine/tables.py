"""Creates, finds and drops tables, and keeps a bounded number of them open."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from crannog.api.arguments import checked_if_exists
from crannog.delta.layout import bloom_columns, parquet_options, statistics_columns
from crannog.delta.log import FORMAT_VERSION, marker_path, metadata_action
from crannog.delta.log import put_entry as put_log_entry
from crannog.delta.schemas import (
    check_key,
    check_partition_by,
    column_names,
    difference,
    fingerprint,
    to_delta_json,
    user_columns,
    user_schema,
    with_system_columns,
)
from crannog.engine.open_table import OpenTable
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, Conflict, NotFound
from crannog.names import TableName
from crannog.version import VERSION

OWN_FOLDERS = ("stage", "batches", "leases", "audit", "jobs")


class Tables:
    """The tables of a warehouse, as one process sees them. Thread-safe."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._open: OrderedDict[TableName, OpenTable] = OrderedDict()
        self._lock = threading.Lock()

    def create(
        self,
        name: TableName,
        schema: Any,
        *,
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        bloom: Sequence[str] = (),
        if_exists: str = "error",
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a table with one log entry, put if absent; return True if this call created it.

        Raises Conflict if the table exists with another definition (the message shows the difference), or with
        the same one and `if_exists` is "error". `properties` are additional Delta properties, stored unchanged.
        """
        self._warehouse.check_open()
        checked_if_exists(if_exists)
        wanted = _definition(schema, key, partition_by, cluster_by, bloom)
        other = self._other_spelling(name)
        if other is not None:
            raise Conflict(
                f"cannot create {name}: it differs only by case from the existing {other}, or from its catalog or schema;"
                " Spark ignores case; use the existing spelling, or choose another name"
            )
        storage = self._warehouse.storage
        log_folder = f"{name.path}/_delta_log"
        if not storage.names(log_folder):
            table_id = str(uuid.uuid4())
            own = f"{name.path}/_crannog/{table_id}"
            for folder in OWN_FOLDERS:
                storage.make_folder(f"{own}/{folder}")
            storage.make_folder(log_folder)
            storage.make_folder(f"{name.path}/data")
            storage.put_if_absent(marker_path(name.path, table_id), json.dumps({"table": str(name)}).encode())
            if put_log_entry(storage, f"{log_folder}/{0:020}.json", _first_entry(table_id, *wanted, properties or {})):
                return True
            storage.delete_folder(own)  # another process was first
        self._compare(name, wanted, if_exists)
        return False

    def _other_spelling(self, name: TableName) -> TableName | None:
        """Return an existing name that differs from this one only by case, or None.

        Spark and some file systems treat such names as equal. Catalogs and schemas count, too.
        """
        storage = self._warehouse.storage
        parts = [name.catalog, name.schema, name.table]
        for depth, part in enumerate(parts):
            above = "/".join(parts[:depth])
            there = storage.folders(above)
            if part in there:
                continue
            other = next((each for each in there if each.lower() == part.lower()), None)
            if other is None or (depth == 2 and not storage.names(f"{above}/{other}/_delta_log")):
                return None
            parts[depth] = other
            return TableName(*parts)
        return None

    def _compare(
        self, name: TableName, wanted: tuple[pa.Schema, tuple[str, ...], dict[str, str]], if_exists: str
    ) -> None:
        base = self.open(name).log.head()
        schema, partition_by, properties = wanted
        clashes = []
        if fingerprint(schema) != fingerprint(base.schema):
            clashes.append(difference(user_columns(base.schema), user_columns(schema)).describe())
        if list(base.key) != json.loads(properties["crannog.key"]):
            clashes.append(f"its key is {list(base.key)}, requested {json.loads(properties['crannog.key'])}")
        if base.partition_by != partition_by:
            clashes.append(f"it is partitioned by {list(base.partition_by)}, requested {list(partition_by)}")
        if clashes:
            raise Conflict(f"table {name} exists with another definition: {'; '.join(clashes)}")
        if if_exists == "error":
            raise Conflict(f"table {name} exists with the same definition; set if_exists to ok to use it")

    def open(self, name: TableName, *, displace: bool = True) -> OpenTable:
        """Return the open table, opening it if necessary. Raises NotFound if it does not exist.

        A table that another process dropped meanwhile raises NotFound when it is used: `forget` it and open it again.
        Without `displace` a table is not kept open if that would close another.
        """
        if self._warehouse.closed:
            self._warehouse.check_open()
        with self._lock:
            table = self._open.get(name)
            if table is not None:
                self._open.move_to_end(name)
                table.used_at = time.monotonic()
        if table is not None:
            return table
        opened = OpenTable(self._warehouse, name)
        storage = self._warehouse.storage
        # A file system that ignores case finds a table by any spelling; permissions and caches use one.
        if (
            storage.is_local
            and storage.exists(name.path.swapcase())
            and (other := self._other_spelling(name)) is not None
        ):
            raise NotFound(f"there is no table {name}; there is {other}, which differs only by case")
        with self._lock:
            if not displace and name not in self._open and len(self._open) >= self._warehouse.settings.open_tables:
                return opened
            # Two threads may have opened it at once; both must use the same writer.
            table = self._open.setdefault(name, opened)
            self._open.move_to_end(name)
            self._close_surplus()
        return table

    def _close_surplus(self) -> None:
        now = time.monotonic()
        idle = self._warehouse.settings.idle_close_s
        for name in [name for name, table in self._open.items() if now - table.used_at > idle]:
            del self._open[name]
        while len(self._open) > self._warehouse.settings.open_tables:
            self._open.popitem(last=False)

    def close_idle(self) -> None:
        """Close tables that were not used for a while; the next use opens them again."""
        with self._lock:
            self._close_surplus()

    def opened(self) -> list[OpenTable]:
        """Return the open tables, without counting as a use of them."""
        with self._lock:
            return list(self._open.values())

    def forget(self, name: TableName) -> None:
        with self._lock:
            self._open.pop(name, None)

    def spelled(self, name: TableName) -> TableName:
        """Return the table whose name matches, ignoring case; the given name unless exactly one matches."""
        with self._lock:
            if name in self._open:
                return name
        if self._is_there(name.path):
            return name
        alike = [other for other in self.names() if str(other).lower() == str(name).lower()]
        return alike[0] if len(alike) == 1 else name

    def position(self, name: TableName) -> tuple[int, int] | None:
        """Return the position of a table that is open here, as `positions` does; None if it is not open."""
        with self._lock:
            table = self._open.get(name)
            return None if table is None else table.log.position

    def positions(self) -> dict[TableName, tuple[int, int]]:
        """Return the position of each table that is open here: what this process knows, without a look at the storage."""
        with self._lock:
            return {name: table.log.position for name, table in self._open.items()}

    def names(self) -> list[TableName]:
        """List every table of the warehouse."""
        storage = self._warehouse.storage
        found = []
        for catalog in storage.folders(""):
            if catalog.startswith(("_", ".")):
                continue
            for schema in storage.folders(catalog):
                for table in storage.folders(f"{catalog}/{schema}"):
                    if self._is_there(f"{catalog}/{schema}/{table}"):
                        with suppress(CallerError):
                            found.append(TableName.parse(f"{catalog}.{schema}.{table}"))
        return sorted(found)

    def _is_there(self, folder: str) -> bool:
        storage = self._warehouse.storage
        return storage.exists(f"{folder}/_delta_log/{0:020}.json") or bool(storage.names(f"{folder}/_delta_log"))

    def drop(self, name: TableName) -> None:
        """Remove a table and all its files; concurrent writers get NotFound."""
        self._warehouse.check_open()
        storage = self._warehouse.storage
        if not storage.names(f"{name.path}/_delta_log"):
            raise NotFound(f"there is no table {name}; list the tables to see which exist")
        self.forget(name)
        if not storage.is_local:
            # Where a folder does not disappear in one step, the marker is deleted first: for everyone the table is gone.
            storage.delete(
                file.path for file in list(storage.walk(f"{name.path}/_crannog")) if file.path.endswith("/table.json")
            )
        storage.delete_folder(name.path)


def _definition(
    schema: Any, key: Sequence[str], partition_by: Sequence[str], cluster_by: Sequence[str], bloom: Sequence[str]
) -> tuple[pa.Schema, tuple[str, ...], dict[str, str]]:
    key, partition_by = column_names(key, "key"), column_names(partition_by, "partition_by")
    cluster_by, bloom = column_names(cluster_by, "cluster_by"), column_names(bloom, "bloom")
    user = check_key(user_schema(schema), key)
    partitions = check_partition_by(user, partition_by)
    full = with_system_columns(user, partitions)
    for role, names in (("cluster_by", cluster_by), ("bloom", bloom)):
        for name in names:
            if name not in full.names:
                raise CallerError(f"{role} has the column {name}, which the schema does not have")
    if set(key) & set(partitions):
        raise CallerError(
            f"column {sorted(set(key) & set(partitions))[0]} is both key and partition: an erased key would stay in the log; partition by another column"
        )
    if key and partitions:
        raise CallerError(
            "a table with a key cannot be partitioned: one key could be in two partitions; use cluster_by"
        )
    return full, partitions, table_properties(full, key, partitions, cluster_by, bloom)


def table_properties(
    schema: pa.Schema, key: Sequence[str], partition_by: Sequence[str], cluster_by: Sequence[str], bloom: Sequence[str]
) -> dict[str, str]:
    """Return the Delta properties of a table: its layout, for every later write, and Crannog's own metadata."""
    # Keyed tables are searched by key, others by time.
    clustered = list(cluster_by) or list(key) or ["_created_at"]
    blooms = bloom_columns(schema, key, bloom)
    return {
        "crannog.formatVersion": str(FORMAT_VERSION),
        "crannog.key": json.dumps(list(key)),
        "crannog.clusterBy": json.dumps(clustered),
        "crannog.bloom": json.dumps(list(bloom)),
        "delta.checkpointInterval": "5",
        "delta.logRetentionDuration": "interval 1 days",
        "delta.dataSkippingStatsColumns": ",".join(
            name if name.isidentifier() and name.isascii() else f"`{name}`"
            for name in statistics_columns(schema, key, partition_by, clustered)
        ),
        **parquet_options(schema, blooms),
    }


def _first_entry(
    table_id: str,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    properties: dict[str, str],
    further: Mapping[str, str],
) -> list[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    return [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "CREATE TABLE",
                "operationParameters": {},
                "engineInfo": f"crannog/{VERSION}",
            }
        },
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata_action(
            table_id=table_id,
            schema_json=to_delta_json(schema),
            partition_by=partition_by,
            properties={**further, **properties},
            created_ms=now_ms,
        ),
    ]
