"""The log as a Delta table: a table of Crannog holds the events, and reads come from a read model that follows it.

An append is one staged file, durable in milliseconds, without Spark. Its rows carry their indexes, so it must come
directly after the state they were derived from: it is committed as the very next sequence or not at all, and planned
again if another process was first. So indexes are commit order, without gaps, the same for every reader.
The threads of a process, and the processes of a machine, share a commit (`DeltaAppends`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import pyarrow as pa

from crannog.api.arguments import new_batch_id
from crannog.builds.append_plan import check_changes, checked_batch, plan, same_event
from crannog.builds.events import BuildEvent
from crannog.builds.open_log import EVENTS, without_password
from crannog.builds.read_model.event_queries import in_chunks, one_of
from crannog.builds.read_model.tables import Connection
from crannog.builds.requests import checked_indexes
from crannog.builds.stores.delta_read_model import Position, TableChange, model_path
from crannog.builds.stores.event_table import (
    KEY,
    Append,
    AppendCall,
    AppendMessages,
    events_of,
    open_event_table,
    rows_of,
)
from crannog.builds.stores.read_model_log import ModelLog
from crannog.builds.stores.read_model_sync import ReadModelSync
from crannog.engine.commit.group import Group
from crannog.engine.commit.handover import BUCKET_PATIENCE_S, Handover
from crannog.engine.open_table import OpenTable
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, Conflict, NotFound, Unavailable
from crannog.names import TableName
from crannog.settings import load_settings

log = logging.getLogger("crannog.builds")
T = TypeVar("T")
_MOST_WAITING = 10_000
_MAX_ATTEMPTS = 1_000


class DeltaAppends:
    """The appends of one process to one log. Safe for threads."""

    def __init__(self, table: OpenTable, sync: ReadModelSync, uri: str) -> None:
        self._table = table
        self._sync = sync
        self._uri = uri
        self._handover = self._opened_handover()
        commit: Callable[[list[AppendCall]], None] = self._commit if self._handover is None else self._handover.run
        self._group: Group[Append, list[int]] = Group(
            commit, called=lambda: "the build log", most_waiting=_MOST_WAITING
        )
        self._looks_first = True
        """Whether to look for commits of other processes before the next one, instead of when it fails."""
        self._is_warm = False

    def _opened_handover(self) -> Handover[Append, list[int]] | None:
        folder, patience_s = self._table.handover_folder, None
        if folder is None and self._sync.model.path is not None:
            # In a bucket there are no locks, but the processes of this machine share the file of the read model.
            folder, patience_s = self._sync.model.path.with_suffix(".handover"), BUCKET_PATIENCE_S
        if folder is None:
            return None
        return Handover(
            folder,
            self._commit,
            AppendMessages(),
            rows=lambda append: len(append.events),
            on_change=self._look_first,
            patience_s=patience_s,
        )

    def append(self, events: list[BuildEvent], *, check_states: bool) -> list[int]:
        """Store a batch; return its indexes once it is durable."""
        if not self._is_warm:
            # pyarrow loads numpy and pandas at the first array it makes: not while others wait for the turn.
            pa.array([0])
            self._is_warm = True
        indexes = self._group.submit(Append(events, check_states))
        self._sync.flush_when_due()
        return indexes

    def close(self) -> None:
        if self._handover is not None:
            self._handover.close()

    def _look_first(self) -> None:
        self._looks_first = True

    def _commit(self, calls: Sequence[AppendCall]) -> None:
        for _ in range(_MAX_ATTEMPTS):
            if self._try(calls):
                return
        raise Unavailable(
            f"cannot append to {self._uri}: other writers won {_MAX_ATTEMPTS} times; try again", retry_after_s=1.0
        )

    def _try(self, calls: Sequence[AppendCall]) -> bool:
        seen = self._sync.seen
        if self._looks_first:
            newest = self._sync.newest()
            # After a look that finds nothing the next commit goes without one: it fails if another process was first.
            self._looks_first, seen = newest != seen, newest
        fresh, indexes = self._planned(calls, seen)
        if fresh:
            try:
                receipt = self._table.stage(rows_of(fresh), after=seen.sequence)
            except Conflict:
                self._looks_first = True
                return False  # another process was first: its events may be among ours, and ours come after them
            self._sync.committed(TableChange(receipt.sequence, tuple(fresh)))
        # Only now: a call with a result counts as committed.
        for call, given in indexes:
            call.result = given
        return True

    def _planned(
        self, calls: Sequence[AppendCall], seen: Position
    ) -> tuple[list[BuildEvent], list[tuple[AppendCall, list[int]]]]:
        """Return the events to store and the indexes of each call; a call that is refused gets its error."""
        known = self._sync.known([event.event_id for call in calls for event in call.value.events])
        fresh: list[BuildEvent] = []
        indexes: list[tuple[AppendCall, list[int]]] = []
        for call in calls:
            call.error = None
            try:
                planned = plan(call.value.events, known, seen.last_index + len(fresh))
                if call.value.check_states:
                    self._sync.flush()
                    with self._sync.model.database.reading() as model:
                        check_changes(model, [*fresh, *planned.fresh])
            except (CallerError, Conflict) as error:
                call.error = error
                continue
            indexes.append((call, planned.indexes))
            fresh.extend(planned.fresh)
            known.update((event.event_id, event) for event in planned.fresh)
        return fresh, indexes


def open_delta_log(uri: str, location: str, query: str, options: dict[str, Any]) -> DeltaLog:
    """Open the log in a warehouse, or the one whose own folder `location` is."""
    parameters = dict(parse_qsl(query))
    if unknown := sorted(parameters.keys() - {"table"}):
        raise CallerError(
            f"{uri!r}: there is no parameter {unknown[0]}; ?table=catalog.schema.table names another table"
        )
    name = parameters.get("table")
    if name is None and "://" not in location and (Path(location) / "_delta_log").is_dir():
        *above, catalog, schema, table = Path(location).parts
        name, location = f"{catalog}.{schema}.{table}", str(Path(*above))
    check_states, model = options.pop("check_states", False), options.pop("model", None)
    warehouse = Warehouse(location, load_settings(**options))
    try:
        return DeltaLog(
            warehouse,
            Tables(warehouse),
            uri,
            TableName.parse(name) if name else EVENTS,
            check_states=check_states,
            model=model,
            owns_warehouse=True,
        )
    except BaseException:
        warehouse.close()
        raise


class DeltaLog(ModelLog):
    """Events in a table of a warehouse, which is created if it does not exist.

    `model` is where the read model is kept: `None` (beside the table), `"memory"`, or the path of a file. With
    `owns_warehouse` the warehouse is closed with the log.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        tables: Tables,
        uri: str,
        name: TableName,
        *,
        check_states: bool = False,
        model: str | Path | None = None,
        owns_warehouse: bool = False,
    ) -> None:
        self.warehouse = warehouse
        self.uri = uri
        self.name = name
        self._tables = tables
        self._owns_warehouse = owns_warehouse
        self._check_states = check_states
        self._closed = False
        self._model = model
        self._abandoned: list[tuple[ReadModelSync, DeltaAppends]] = []
        self._opening = threading.Lock()
        self._open()

    def _open(self) -> None:
        table, migration = open_event_table(self._tables, self.name, self.uri)
        sync = ReadModelSync(table, model_path(table, self._model), self.uri)
        appends = DeltaAppends(table, sync, self.uri)
        self.table, self.migration, self._sync, self._appends = table, migration, sync, appends

    def _again(self, act: Callable[[], T]) -> T:
        """Run `act`; if the table was removed or replaced meanwhile, open the table that is there now and run it again.

        As when the log is opened, a missing table is created. No event is kept twice: their ids identify them.
        """
        known = self._sync
        try:
            return act()
        except (NotFound, FileNotFoundError):
            if self._closed:
                raise
        try:
            with self._opening:
                if self._sync is known:  # else another thread has opened it
                    log.warning(
                        "the files of %s, the table of the build log at %s, were removed; opening it again",
                        self.name,
                        without_password(self.uri),
                    )
                    abandoned = self._sync, self._appends
                    self._tables.forget(self.name)
                    self._open()
                    self._abandoned.append(abandoned)  # closed with the log: other threads may still read from it
            return act()
        except FileNotFoundError as error:
            raise Unavailable(
                f"a file of {self.name}, the table of the build log, is gone: {error.filename}; try again"
            ) from error

    # -- writing -----------------------------------------------------------------------------------------------------

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked_batch(events)
        self._check_open()
        if not batch:
            return []
        check = self._check_states if check_states is None else check_states
        return self._again(lambda: self._appends.append(batch, check_states=check))

    def remove_events(self, indexes: Iterable[int]) -> int:
        listed = checked_indexes(indexes)
        return self._again(lambda: self._removed(listed))

    def _removed(self, listed: list[int]) -> int:
        for _ in range(_MAX_ATTEMPTS):
            seen = self._sync.newest()
            with self.reading() as model:
                known = [
                    index
                    for some in in_chunks(listed)
                    for (index,) in model.query(
                        f"SELECT idx FROM events WHERE {one_of('idx', some)} ORDER BY idx", some
                    )
                ]
            if not known:
                return 0
            self._sync.record_assigned_index(seen.last_index)
            try:
                receipt = self.table.delete(
                    known, actor="", reason="removed from the build log", batch_id=new_batch_id(), after=seen.sequence
                )
            except Conflict:
                self._sync.pull()
                continue
            self._sync.committed(TableChange(receipt.sequence, removed=tuple(known)))
            return len(known)
        raise Unavailable(
            f"cannot remove events from {self.uri}: other writers won {_MAX_ATTEMPTS} times; try again",
            retry_after_s=1.0,
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def reading(self, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
        sync = self._sync
        if not sync.is_unchanged():  # also if it was closed
            self._check_open()
            sync = self._again(self._refreshed)
        return sync.model.database.reading(snapshot=snapshot)

    def _refreshed(self) -> ReadModelSync:
        sync = self._sync
        sync.refresh()
        return sync

    def rebuild(self) -> None:
        """Rebuild the read model from the table."""
        self._check_open()
        self._again(lambda: self._sync.rebuild())

    def size(self) -> tuple[int | None, dict[str, Any]]:
        base, backlog, model = self.table.log.last_seen_base(), self.table.log.backlog(), self._sync.model
        return base.bytes + backlog.bytes, {
            "backend": "delta",
            "table": str(self.name),
            "version": base.version,
            "folded_rows": base.rows,
            "files": len(base.files),
            "staged_rows": backlog.rows,
            "staged_files": backlog.files,
            "model": "memory" if model.path is None else str(model.path),
            "model_bytes": model.database.bytes(),
        }

    def check_store(self) -> Iterator[str]:
        """Compare the rows of the table with the read model."""
        rows = self.table.to_arrow().sort_by(KEY)
        with self.reading() as model:
            [(last,)] = model.query("SELECT COALESCE(max(idx), 0) FROM events")
        in_model = self.all_events()
        for event in events_of(rows):
            if event.index is not None and event.index > last:
                break
            other = next(in_model, None)
            if other is None or other.index != event.index or not same_event(event, other):
                yield f"row {event.index} of {self.name} differs from the read model; rebuild() corrects it"
                return
        if (extra := next(in_model, None)) is not None and extra.index is not None and extra.index <= last:
            yield f"the read model has event {extra.event_id} (index {extra.index}), which {self.name} does not; rebuild() corrects it"

    # -- upkeep ------------------------------------------------------------------------------------------------------

    def fold(self) -> dict[str, Any]:
        """Fold the staged events into the base, with Spark; return the report."""
        from crannog.engine.maintenance.fold import fold

        return self._again(lambda: fold(self.table).as_dict())

    def give_back_space(self) -> None:
        """Fold, compact and vacuum the table, with Spark, while writers continue; then shrink the read model."""
        from crannog.engine.maintenance.compact import compact
        from crannog.engine.maintenance.vacuum import vacuum

        self._again(lambda: compact(self.table))
        self._again(lambda: vacuum(self.table))
        self._sync.flush()
        self._sync.model.database.give_back_space()

    def _check_open(self) -> None:
        if self._closed:
            raise CallerError(f"the build log at {self.uri} is closed; open it again")

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._sync.flush()
        if self._owns_warehouse:
            self.warehouse.close()
        for sync, appends in (*self._abandoned, (self._sync, self._appends)):
            appends.close()
            sync.close()
