"""A table that is open in this process: its writer, its newest snapshot, and the reads that need no SQL."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.arguments import checked_batch_id, checked_limit, new_batch_id
from crannog.api.reports import WriteReceipt
from crannog.delta.log import Base
from crannog.delta.schemas import fingerprint
from crannog.engine import rows as row_input
from crannog.engine.commit.writer import Writer, WriterLimits
from crannog.engine.owned_tables import check_change
from crannog.engine.rows.few import few_rows
from crannog.engine.snapshot import MaskCache, ResultLimit, Snapshot, positions_of, read, relation
from crannog.engine.warehouse import Warehouse
from crannog.errors import (
    BadRows,
    CallerError,
    Corrupted,
    CrannogError,
    NotFound,
    SchemaMismatch,
    SnapshotGone,
    Unavailable,
)
from crannog.formats.row_limits import RowLimit
from crannog.names import TableName
from crannog.protocol.changelog import ChangeLog
from crannog.protocol.leases import Lease
from crannog.protocol.small_parquet import RowBuffer
from crannog.protocol.staged_files import BYTES_PER_CHANGE, Change
from crannog.protocol.tail import Tail

log = logging.getLogger("crannog.engine")

_SYSTEM_BYTES_PER_ROW = 64
_READS = 5
T = TypeVar("T")


class OpenTable:
    """One table as this process has it. Safe for threads."""

    def __init__(self, warehouse: Warehouse, name: TableName) -> None:
        settings = warehouse.settings
        self.warehouse = warehouse
        self.name = name
        self._label = str(name)
        self.folder = name.path
        self.log = ChangeLog(
            warehouse.storage,
            name.path,
            dedup_window_s=settings.dedup_window_s,
            dedup_window_batches=settings.dedup_window_batches,
            pack_bytes=settings.pack_bytes,
        )
        self.writer = Writer(
            self.log,
            WriterLimits(
                settings.queue_calls,
                settings.group_commit_rows,
                settings.staged_rows_limit,
                settings.staged_bytes_limit,
            ),
            after_commit=self._keep_up,
            handover_folder=self.handover_folder,
        )
        self._users: Base | None = None
        """The version of which it is known that it belongs to no part of Crannog."""
        self._masks: MaskCache | None = None
        self._snapshot: Snapshot | None = None
        self._refreshed_at = 0.0
        self.used_at = time.monotonic()
        self.before_fold: Callable[[Snapshot], None] | None = None
        """Told what a fold takes before it does: a copy in memory must apply the changes while they are at hand."""

    @property
    def handover_folder(self) -> Path | None:
        """Where the processes of this machine share commits; None if the table is in a bucket."""
        storage = self.warehouse.storage
        return Path(storage.uri(self.log.own_folder)) / "handover" if storage.is_local else None

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, verb: str, rows: Any, batch_id: str | None) -> WriteReceipt:
        """Keep rows: `append` on a table without a key, `upsert` (which append then means) on one with a key."""
        if verb == "upsert" and not self.log.last_seen_base().key:
            raise CallerError(f"cannot upsert into {self.name}: it has no key; append to it, or create it with a key")
        # Before the rows are converted, which may take many times their memory.
        limit = self.warehouse.settings.max_rows_per_call
        given = rows.num_rows if hasattr(rows, "num_rows") else len(rows) if hasattr(rows, "__len__") else 0
        if given > limit:
            RowLimit(limit, str(self.name)).check(given)
        base = self.log.last_seen_base()
        table: pa.Table | RowBuffer | None = None if base.partition_by else few_rows(rows, base.user_schema)
        if table is None:
            base, table = self._with_newest_schema(
                lambda schema: row_input.to_arrow(rows, schema, table=self._label, verb=verb)
            )
            if base.partition_by:
                self._check_partitions(base, table, verb)
        if table.num_rows > limit:
            RowLimit(limit, str(self.name)).check(table.num_rows)
        return self._stage("upsert" if base.key else "append", base, table, batch_id)

    def stage(self, rows: pa.Table | RowBuffer, *, after: int | None = None) -> WriteReceipt:
        """Keep rows that are known to fit, as those of Crannog's own tables are; columns that are not given are null.

        With `after`, at once as the very next sequence after it, or Conflict.
        """
        base = self.log.last_seen_base()
        return self._stage("upsert" if base.key else "append", base, rows, None, after=after)

    def check_change(self, change: str) -> None:
        """Raise Refused if the table belongs to a part of Crannog, which alone may change it so."""
        base = self.log.last_seen_base()
        if base is not self._users:
            check_change(change, self.name, base.properties)
            self._users = base

    def _check_partitions(self, base: Base, rows: pa.Table, verb: str) -> None:
        """Refuse empty text as a partition: Delta's log cannot tell it from null."""
        for name in base.partition_by:
            if name in rows.column_names and pa.types.is_string(rows.schema.field(name).type):
                place = pc.index(rows[name], "").as_py()
                if place >= 0:
                    raise BadRows(
                        f"cannot {verb} to {self.name}: row {place} (counting from 0), column {name}: a partition cannot be"
                        " empty text, which Delta takes for null; give null or a word; nothing of the batch was kept"
                    )

    def delete(
        self, keys: Any, *, actor: str, reason: str, batch_id: str | None, after: int | None = None
    ) -> WriteReceipt:
        """Hide the rows of these keys from all snapshots at once; a fold then takes them out of the base, which others read.

        With `after`, as the very next sequence after it, or Conflict.
        """
        base = self.log.last_seen_base()
        if not base.key:
            raise CallerError(f"cannot delete from {self.name}: it has no key, so there is nothing to delete by")
        wanted = row_input.keys_to_arrow(keys, base.user_schema, base.key, table=str(self.name), verb="delete")
        return self._stage("delete", base, wanted, batch_id, actor=actor, reason=reason, after=after)

    def _with_newest_schema(self, convert: Callable[[pa.Schema], pa.Table]) -> tuple[Base, pa.Table]:
        base = self.log.last_seen_base()
        try:
            return base, convert(base.user_schema)
        except (SchemaMismatch, BadRows):
            # Another process may have evolved the table: look once before refusing.
            newest = self.log.refresh()[0]
            if fingerprint(newest.schema) == fingerprint(base.schema):
                raise
            return newest, convert(newest.user_schema)

    def _stage(
        self,
        kind: str,
        base: Base,
        given: pa.Table | RowBuffer,
        batch_id: str | None,
        *,
        actor: str = "",
        reason: str = "",
        after: int | None = None,
    ) -> WriteReceipt:
        batch = new_batch_id() if batch_id is None else checked_batch_id(batch_id)
        now_us = time.time_ns() // 1000
        count = given.num_rows
        if not count:
            return WriteReceipt(self.log.last_seen()[1].end, 0, batch, duplicate=False)
        size = int(given.nbytes) + count * _SYSTEM_BYTES_PER_ROW + BYTES_PER_CHANGE
        change = Change(batch, kind, given, size, actor, reason, now_us)
        if after is None:
            done = self.writer.write(change, keep_pace=self.warehouse.is_maintained)
        else:
            done = self.writer.write_after(change, after)
        return WriteReceipt(done.sequence, count, batch, done.duplicate)

    def _keep_up(self) -> None:
        for work in self.log.work_due():
            self.warehouse.in_background(self._run_quietly, work)

    def _run_quietly(self, work: Callable[[], object]) -> None:
        # Work that fails costs nothing but files and time: it is due again after a later commit, or a fold makes it needless.
        try:
            work()
        except NotFound:
            return  # dropped meanwhile
        except CrannogError as error:
            log.warning(
                "cannot pack staged changes of %s or prepare files for them; tries again later: %s", self.name, error
            )

    # -- reading ---------------------------------------------------------------------------------------------

    def snapshot(self, *, min_sequence: int | None = None) -> Snapshot:
        """Return the newest snapshot: of this process at once, of others as PROTOCOL 8 says."""
        self.used_at = time.monotonic()
        fresh_enough = self.warehouse.settings.refresh_ms / 1000
        now = time.monotonic()
        if self.warehouse.storage.is_local or now - self._refreshed_at > fresh_enough:
            base, tail = self._refreshed()
            self._refreshed_at = now
        else:
            base, tail = self.log.last_seen()
        if min_sequence is not None and tail.end < min_sequence:
            base, tail = self.log.refresh()
            if tail.end < min_sequence:
                raise CallerError(
                    f"{self.name} stands at sequence {tail.end}; {min_sequence} was asked for and is not committed"
                )
        return self._snapshot_of(base, tail)

    def _refreshed(self) -> tuple[Base, Tail]:
        try:
            return self.log.refresh()
        except Unavailable as error:
            # A bucket that does not answer leaves the last snapshot serving; a damaged file is said at once.
            if self.warehouse.storage.is_local or isinstance(error, Corrupted) or not self._refreshed_at:
                raise
            return self.log.last_seen()

    def _snapshot_of(self, base: Base, tail: Tail) -> Snapshot:
        last = self._snapshot
        if last is not None and last.base is base and last.tail is tail:
            return last  # with all that was worked out about it

        self._snapshot = Snapshot(str(self.name), base, tail, self._local_paths)
        return self._snapshot

    def at_version(self, base: Base) -> Snapshot:
        """Return the snapshot of an earlier version of the base, with nothing staged."""
        return Snapshot(str(self.name), base, Tail(base.folded, base.folded, (), base.schema), self._local_paths)

    def _local_paths(self, paths: Sequence[str]) -> list[str]:
        return self.warehouse.local_paths([f"{self.folder}/{path}" for path in paths])

    def masks(self, snapshot: Snapshot, *, raw: bool = False) -> pa.Table:
        """Return the positions of base rows that the tail hides."""
        if raw and snapshot.key:
            return positions_of(self.warehouse.duckdb, snapshot, snapshot.changed_keys(raw=True))
        if self._masks is None:
            self._masks = MaskCache(lambda: self.warehouse.duckdb)
        return self._masks.masks(snapshot)

    def relation(
        self,
        snapshot: Snapshot,
        prefix: str,
        *,
        raw: bool = False,
        files: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        staged: pa.Table | None = None,
        may_copy_staged: bool = True,
    ) -> tuple[str, Mapping[str, pa.Table]]:
        """Return the SQL, for the in-process engine, that reads a snapshot, and the in-memory tables it names.

        `files` are those of the base that are needed, `columns` the columns, `staged` the staged rows; all if not given.
        Without `may_copy_staged`, no staged row is copied into a table of the engine.
        """
        masks = self.masks(snapshot, raw=raw)
        return relation(
            self.warehouse.duckdb,
            snapshot,
            masks,
            prefix,
            raw=raw,
            files=files,
            columns=columns,
            staged=staged,
            may_copy_staged=may_copy_staged,
        )

    def to_arrow(
        self,
        *,
        raw: bool = False,
        limit: int | None = None,
        snapshot: Snapshot | None = None,
        most: ResultLimit | None = None,
    ) -> pa.Table:
        """Read the table, or a snapshot of it, through the in-process engine. Raises TooLarge beyond `most`."""
        checked_limit(limit)

        def rows(of: Snapshot) -> pa.Table:
            query, tables = self.relation(of, "t", raw=raw)
            if limit is not None:
                query = f"SELECT * FROM ({query}) LIMIT {int(limit)}"
            with self.warehouse.duckdb.cursor(tables) as cursor:
                return read(cursor, query, most).cast(of.base.read_schema)

        return rows(snapshot) if snapshot is not None else self.newest(rows)

    def count(self, *, raw: bool = False, snapshot: Snapshot | None = None) -> int:
        """Count the visible rows from the log, the masks and the tail; no file of the base is scanned for it."""

        def rows(of: Snapshot) -> int:
            hidden = self.masks(of, raw=raw).num_rows
            staged = of.visible_tail(raw=raw).num_rows if of.key else of.tail.row_count
            return of.base.rows - int(hidden) + int(staged)

        return rows(snapshot) if snapshot is not None else self.newest(rows)

    def newest(self, act: Callable[[Snapshot], T]) -> T:
        """Do something with the newest snapshot; where its files went meanwhile, with the one that replaced it.

        Corrupted names a file that is gone although the newest version has it.
        """
        for _ in range(_READS):
            try:
                return act(self.snapshot())
            except SnapshotGone:
                continue
        try:
            return act(self.snapshot())
        except SnapshotGone:
            check_files(self)
            raise

    def file_bytes(self, base: Base) -> int:
        """Return the file size that rewrites aim at; small for a keyed table, whose folds rewrite files."""
        settings = self.warehouse.settings
        return settings.keyed_file_bytes if base.key else settings.target_file_bytes

    def reading(self, snapshot: Snapshot) -> Lease:
        """Return a lease that keeps the snapshot's files while a long read runs."""
        name = f"reader-{new_batch_id()}.json"
        content = {"kind": "reader", "version": snapshot.base.version, "sequence": snapshot.base.folded}
        return Lease(self.warehouse.storage, f"{self.log.own_folder}/leases/{name}", content)

    # -- tombstones ------------------------------------------------------------------------------------------

    def tombstones(self) -> list[dict[str, Any]]:
        """List the deletes that no fold has applied yet: key, who, why, when, and whether the key was there."""
        return self.newest(lambda snapshot: tombstones_of(self, snapshot) if snapshot.key else [])


def tombstones_of(table: OpenTable, snapshot: Snapshot) -> list[dict[str, Any]]:
    """List the staged deletes of a snapshot, oldest first, one entry per key and delete."""
    rows = snapshot.tail.rows
    is_delete = pc.equal(rows["_op"], 1)
    deletes = rows.filter(is_delete)
    if not deletes.num_rows:
        return []
    keys = deletes.select([*snapshot.key, "_seq", "_ord"])
    tables: dict[str, pa.Table] = {"staged": rows.select([*snapshot.key, "_seq", "_ord", "_op"]), "deleted": keys}
    engine = table.warehouse.duckdb
    match = " AND ".join(f'o."{name}" = d."{name}"' for name in snapshot.key)
    earlier = f"SELECT 1 FROM staged o WHERE {match} AND (o._seq, o._ord) < (d._seq, d._ord)"
    # The last earlier change of the key tells: a row if it was an upsert, none if a delete, else the base does.
    last = (
        f"(SELECT arg_max(o._op, (o._seq, o._ord)) FROM staged o WHERE {match} AND (o._seq, o._ord) < (d._seq, d._ord))"
    )
    paths = snapshot.local_paths(list(snapshot.base.files))
    in_base = "false"
    if paths:
        schema = pa.schema([snapshot.base.schema.field(name) for name in snapshot.key])
        match_base = " AND ".join(f'b."{name}" = d."{name}"' for name in snapshot.key)
        in_base = f"EXISTS (SELECT 1 FROM {engine.scan(paths, schema)} b WHERE {match_base})"
    with engine.cursor(tables) as cursor:
        found = read(
            cursor,
            f"SELECT d.*, CASE WHEN EXISTS ({earlier}) THEN {last} = 0 ELSE {in_base} END AS was_there"
            " FROM deleted d ORDER BY _seq, _ord",
        )
    # A staged file may hold several deletes: rows stand in the order of the notes.
    listed = []
    ends: dict[int, list[tuple[int, Any]]] = {}
    place: dict[int, int] = {}
    for record in snapshot.tail.records:
        place[record.sequence] = place.get(record.sequence, 0) + record.rows
        ends.setdefault(record.sequence, []).append((place[record.sequence], record))
    for row in found.to_pylist():
        sequence, order = row.pop("_seq"), row.pop("_ord")
        record = next(record for end, record in ends[sequence] if order < end)
        listed.append(
            {
                "key": {name: row[name] for name in snapshot.key},
                "actor": record.actor,
                "reason": record.reason,
                "deleted_at": dt.datetime.fromtimestamp(record.at_us / 1e6, dt.UTC),
                "outcome": "hidden" if row["was_there"] else "not there",
                "sequence": sequence,
                "order": order,
                "batch_id": record.batch_id,
            }
        )
    return listed


def check_files(table: OpenTable) -> None:
    """Raise Corrupted if the newest version names a file that is not there."""
    for path in table.log.head().files:
        if not table.warehouse.storage.exists(f"{table.folder}/{path}") and path in table.log.head().files:
            raise Corrupted(
                f"file {table.folder}/{path} of table {table.name} is missing, though its newest version has it;"
                " restore it from a backup, or drop the table"
            )
