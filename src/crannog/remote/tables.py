"""The operations on tables and SQL over HTTP. Rows are converted to Arrow here, by the engine's rules and with its errors."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote

from crannog.api import table_requests as ops
from crannog.api.arguments import checked_batch_id, checked_query_id
from crannog.api.operations import AnyOperation, Operation, Q, R, Route
from crannog.api.reports import Cancellation, Progress, WriteReceipt
from crannog.api.table_requests import Definition, ExplainSql, RunSql, StreamSql
from crannog.errors import BadRows, CallerError, Conflict, NotFound, SchemaMismatch
from crannog.formats.json_values import to_plain_json
from crannog.names import TableName
from crannog.remote.connection import ARROW, ONE_TRY, READ_S, READ_TRIES, WRITE_TRIES, Connection, Params
from crannog.remote.transport import HttpTransport, document_of, path_of, read_as, run_job

if TYPE_CHECKING:
    import pyarrow as pa

    from crannog.api.result import Explanation, Result, Stream

T = TypeVar("T")
_ARROW_OUT = frozenset({ops.TOMBSTONES, ops.PREVIEW, ops.READ})
_TIMES = {
    ops.DESCRIBE: ("created_at",),
    ops.DELETES: ("deleted_at",),
    ops.TASKS: ("claimed_at", "completed_at", "next_run_at"),
}
_INNER = {ops.COUNT: "rows", ops.EVICT: "evicted"}


@dataclass(slots=True)
class _Known:
    """The last definition of a table that the server sent; parsed as Arrow only when rows are sent."""

    answer: tuple[bytes, str]
    definition: Definition | None = None


class TableTransport(HttpTransport):
    """Carries out the operations on tables and SQL on a server."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._known: dict[TableName, _Known] = {}

    def within(self, timeout_s: float | None, query_id: str | None) -> TableTransport:
        return self

    def close(self) -> None:
        self.connection.close()

    # -- plain operations --------------------------------------------------------------------------------------------

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        return cast(R, self._result(operation, request))

    def _result(self, operation: AnyOperation, request: Any) -> Any:
        if operation in (ops.APPEND, ops.UPSERT):
            return self._write(operation, request)
        if operation is ops.DELETE:
            return self._delete(request)
        if operation in (ops.DEFINITION, ops.LAST_DEFINITION):
            return self._definition(request.name, fresh=operation is ops.DEFINITION)
        if operation is ops.CREATE:
            return self._create(request)
        if operation is ops.ROW:
            return self._row(request)
        if operation in _ARROW_OUT:
            return self._arrow(operation, request)
        return self._document(operation, request)

    def _document(self, operation: AnyOperation, request: Any) -> Any:
        """Request a JSON document."""
        # Loading a large table into memory takes time, and may be requested again.
        is_pin = operation is ops.PIN
        tries = READ_TRIES if is_pin or operation.right == "read" else ONE_TRY
        found = self.send(operation, _with_filters(request), tries=tries, read_s=None if is_pin else READ_S).json()
        if operation is ops.FACETS:
            return read_as(ops.TableFacets, found)
        if operation is ops.LIST_TABLES:
            return [table["name"] for table in found]
        if operation in _INNER:
            return found[_INNER[operation]]
        for entry in [found] if isinstance(found, dict) else found:
            for name in _TIMES.get(operation, ()):
                entry[name] = None if entry[name] is None else dt.datetime.fromisoformat(entry[name])
        return found

    def _arrow(self, operation: AnyOperation, request: Any) -> Any:
        from crannog.remote.streaming import table_of

        read_s = None if operation is ops.READ else READ_S
        answer = self.send(
            operation, _with_filters(request), headers={"Accept": ARROW}, tries=READ_TRIES, read_s=read_s
        )
        table = table_of(answer.content)
        if operation is ops.READ:
            cursors = (answer.headers.get(f"Crannog-{which}-Cursor") for which in ("Next", "Previous"))
            return ops.RowPage(table, *cursors)
        return list(table.to_pylist()) if operation is ops.TOMBSTONES else table

    def _row(self, request: ops.GetRow) -> dict[str, Any]:
        from crannog.engine.rows.keys import exact_key
        from crannog.formats.row_bodies import texts_of_key

        def texts(table: Definition) -> list[str]:
            return texts_of_key(exact_key(request.key, table.user_schema, table.key, table=str(request.name)))

        try:
            key = texts(self._definition(request.name, fresh=False))
        except NotFound:
            raise
        except CallerError:
            # The table may have been re-created with another key.
            key = texts(self._definition(request.name, fresh=True))
        found = self._arrow(ops.ROW, ops.GetRow(request.name, key))
        return dict(found.to_pylist(maps_as_pydicts="strict")[0])

    # -- what a table is ---------------------------------------------------------------------------------------------

    def _look(self, table: TableName) -> _Known:
        """Request the current columns and key; returns the same object while they do not change."""
        answer = self.send(ops.DEFINITION, ops.GetDefinition(table), headers={"Accept": ARROW}, tries=READ_TRIES)
        response = (answer.content, answer.headers["Crannog-Key"])
        known = self._known.get(table)
        if known is None or known.answer != response:
            known = self._known[table] = _Known(response)
        return known

    def _definition(self, table: TableName, *, fresh: bool) -> Definition:
        known = self._look(table) if fresh or table not in self._known else self._known[table]
        if known.definition is None:
            # Imported here, so that a program that does not use rows need not load Arrow.
            from crannog.delta.schemas import user_columns
            from crannog.remote.streaming import schema_of

            schema = schema_of(known.answer[0])
            known.definition = Definition(schema, user_columns(schema), tuple(json.loads(known.answer[1])))
        return known.definition

    def find(self, table: TableName) -> None:
        """Raise NotFound if the table does not exist."""
        self._look(table)

    def _create(self, request: ops.CreateTable) -> bool:
        from crannog.delta.schemas import column_names, user_schema
        from crannog.remote.streaming import packed_schema

        columns = {
            "key": request.key,
            "partition_by": request.partition_by,
            "cluster_by": request.cluster_by,
            "bloom": request.bloom,
        }
        params: dict[str, str | list[str] | None] = {
            role: list(column_names(names, role)) for role, names in columns.items()
        }
        self.connection.check_open()
        answer = self.connection.ask(
            "PUT",
            f"/tables/{request.name}",
            params={**params, "if_exists": request.if_exists},
            content=packed_schema(user_schema(request.schema)),
            headers={"Content-Type": ARROW},
            # A retry would conflict with the table that a try with a lost response created, unless if_exists is "ok".
            tries=WRITE_TRIES if request.if_exists == "ok" else ONE_TRY,
        )
        return answer.status_code == 201

    # -- rows --------------------------------------------------------------------------------------------------------

    def _write(self, operation: AnyOperation, request: ops.WriteRows) -> WriteReceipt:
        from crannog.engine.rows import to_arrow

        route, name = operation.routes[0], request.name
        if operation is ops.UPSERT and not self._has_key(name):
            self._refuse_without_key("PUT", f"/tables/{name}/rows", [])
        batch = checked_batch_id(request.batch_id)
        receipt = self._fitting(
            name,
            lambda known: self._sent(
                route, name, to_arrow(request.rows, known.user_schema, table=str(name), verb=operation.name), batch
            ),
        )
        # The duplicate is a retry after a lost response; for the caller this is the first write.
        return replace(receipt, duplicate=False) if request.batch_id is None else receipt

    def _delete(self, request: ops.DeleteRows) -> WriteReceipt:
        batch, note = checked_batch_id(request.batch_id), {"actor": request.actor, "reason": request.reason}
        receipt = self._fitting(
            request.name,
            lambda known: self._sent(
                ops.DELETE.routes[0], request.name, self._keys(known, request, "delete"), batch, note
            ),
        )
        return replace(receipt, duplicate=False) if request.batch_id is None else receipt

    def _has_key(self, table: TableName) -> bool:
        return bool(self._definition(table, fresh=False).key or self._definition(table, fresh=True).key)

    def _keys(self, known: Definition, request: ops.DeleteRows | ops.EraseRows, verb: str) -> pa.Table:
        from crannog.engine.rows import keys_to_arrow

        if not known.key:
            known = self._definition(request.name, fresh=True)
        if not known.key:
            self._refuse_without_key("POST", f"/tables/{request.name}/{verb}", {"keys": []})
        return keys_to_arrow(request.keys, known.user_schema, known.key, table=str(request.name), verb=verb)

    def _refuse_without_key(self, method: str, path: str, document: Any) -> None:
        """Raise the error of the server for a table without a key."""
        self.connection.ask(method, path, document=document)
        raise Conflict(
            f"{path.split('/')[2]} was re-created with a key during this call; nothing was changed, try again"
        )

    def _fitting(self, table: TableName, act: Callable[[Definition], T]) -> T:
        known = self._definition(table, fresh=False)
        try:
            return act(known)
        except (SchemaMismatch, BadRows):
            # The table may have evolved or been re-created: try once more with the current definition.
            fresh = self._definition(table, fresh=True)
            if fresh is known:
                raise
            return act(fresh)

    def _sent(
        self, route: Route, table: TableName, rows: pa.Table, batch: str, params: Params | None = None
    ) -> WriteReceipt:
        from crannog.remote.streaming import packed

        headers, params = {"Content-Type": ARROW}, dict(params or {})
        if batch.isascii() and batch.isprintable() and batch == batch.strip():
            headers["Crannog-Batch-Id"] = batch
        else:
            params["batch_id"] = batch  # a header holds only ASCII, a batch id any text
        path = route.path.replace("{name}", str(table))
        answer = self.connection.ask(
            route.method, path, content=packed(rows), headers=headers, params=params, tries=WRITE_TRIES
        )
        return WriteReceipt(**answer.json())

    # -- jobs --------------------------------------------------------------------------------------------------------

    def run(
        self, operation: Operation[Q, R], request: Q, progress: Progress | None, cancellation: Cancellation | None
    ) -> R:
        if not isinstance(request, (ops.EraseRows, ops.EvolveTable)):
            return super().run(operation, request, progress, cancellation)
        from crannog.delta.schemas import user_schema
        from crannog.remote.streaming import packed

        path = path_of(operation.routes[0], request)

        def run(body: pa.Table, params: Params | None = None) -> R:
            return run_job(
                self.connection,
                path,
                operation.result,
                progress=progress,
                cancellation=cancellation,
                params=params,
                content=packed(body),
                headers={"Content-Type": ARROW},
            )

        if isinstance(request, ops.EvolveTable):
            return run(user_schema(request.schema).empty_table())
        erase = request
        note = {"actor": request.actor, "reason": request.reason, "erasure_id": request.erasure_id}
        return self._fitting(erase.name, lambda known: run(self._keys(known, erase, "erase"), note))

    # -- SQL ---------------------------------------------------------------------------------------------------------

    def sql(self, request: RunSql) -> Result:
        from crannog.api.result import Result
        from crannog.remote.streaming import table_of

        sent: dict[str, Any] = {}

        def document() -> dict[str, Any]:
            # With a new id each time: the query whose response was lost may still run.
            sent.update(_statement(request))
            return sent

        tries = READ_TRIES if request.query_id is None else ONE_TRY
        try:
            answer = self.send(ops.SQL, request, document=document, headers={"Accept": ARROW}, tries=tries, read_s=None)
        except KeyboardInterrupt:
            if sent:
                self._cancel_quietly(sent["query_id"])
            raise
        headers = answer.headers
        return Result(
            table_of(answer.content),
            headers["Crannog-Engine"],
            headers["Crannog-Truncated"] == "true",
            float(headers["Crannog-Elapsed-Ms"]),
            unquote(headers["Crannog-Query-Id"]),
            unquote(headers["Crannog-Why"]),
        )

    def stream(self, request: StreamSql) -> Stream:
        from crannog.remote.streaming import opened_stream

        return opened_stream(self.connection, _statement(request))

    def explain(self, request: ExplainSql) -> Explanation:
        from crannog.api.result import Explanation, TableReport

        # A query that is analyzed runs as any other, so that it can be cancelled and its result is here.
        found = self.send(ops.EXPLAIN, replace(request, analyze=False), tries=READ_TRIES, read_s=None).json()
        reports = tuple(read_as(TableReport, report) for report in found["tables"])
        explanation = Explanation(found["engine"], found["why"], reports, found["plan"])
        if not request.analyze:
            return explanation
        run = RunSql(request.sql, None, explanation.engine, request.timeout_s, request.query_id)
        return replace(explanation, result=self.sql(run))

    def _cancel_quietly(self, query_id: str) -> None:
        from contextlib import suppress

        from crannog.errors import CrannogError

        with suppress(CrannogError):
            self.cancel(query_id)


def _with_filters(request: Any) -> Any:
    """Return a request whose filters, if it has any, are JSON texts, as a query string takes them."""
    if not isinstance(request, (ops.PageRows, ops.FacetTable)):
        return request
    return replace(request, where=[json.dumps(to_plain_json(given)) for given in request.where])


def _statement(request: RunSql) -> dict[str, Any]:
    # Always with an id, so that a query interrupted here can be cancelled on the server.
    return {**document_of(request), "query_id": checked_query_id(request.query_id)}
