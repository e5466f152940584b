"""A lake behind a server: the same verbs as an embedded one, each of them a request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from crannog.api.arguments import checked_engine, checked_if_exists, checked_max_rows, checked_query_id, checked_timeout
from crannog.names import TableName, without_raw_prefix
from crannog.remote.connection import ARROW, ONE_TRY, READ_TRIES, WRITE_TRIES, Connection
from crannog.remote.jobs import read_as
from crannog.remote.table import RemoteTable, moment

if TYPE_CHECKING:
    from pydantic import BaseModel

    from crannog.api.explanation import Explanation
    from crannog.api.load_report import LoadReport
    from crannog.api.producer import Producer, Producers
    from crannog.api.result import Result, Stream
    from crannog.api.traces import Traces
    from crannog.remote.builds import HttpLog

_TIMES = ("claimed_at", "completed_at", "next_run_at")


class RemoteCache:
    """The tables a server holds in memory: `pin`, `evict`, `stats`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pin(self, name: str) -> dict[str, Any]:
        """Hold a table in memory until it is evicted, and return its figures; Overloaded if it does not fit."""
        # Loading a large table takes its time; asked for twice, it is held once.
        answer = self._connection.ask("PUT", f"/cache/{TableName.parse(name)}", tries=READ_TRIES, read_s=None)
        return dict(answer.json())

    def evict(self, name: str) -> bool:
        """Let go of a table; False if it was not held. NotFound if there is no such table."""
        return bool(self._connection.ask("DELETE", f"/cache/{TableName.parse(name)}").json()["evicted"])

    def stats(self) -> dict[str, Any]:
        """Return the tables held (rows, bytes, hits, misses, last access, version, state) and the limit."""
        return dict(self._connection.ask("GET", "/cache", tries=READ_TRIES).json())


class RemoteLake:
    """A connection to a server. A context manager; safe for threads, and in a child after a fork."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self._connection = Connection(address, token)
        self.cache = RemoteCache(self._connection)
        self._producers: Producers | None = None

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._connection.address

    @cached_property
    def traces(self) -> Traces:
        """The traces: OTLP in, traces, metrics and dependencies out."""
        from crannog.api.traces import Traces
        from crannog.remote.traces import TraceTransport

        return Traces(TraceTransport(self._connection))

    @cached_property
    def builds(self) -> HttpLog:
        """The build log that the server keeps, with the interface of `crannog.builds.open_log`."""
        from crannog.remote.builds import HttpLog

        return HttpLog(self.address, connection=self._connection)

    # -- tables ----------------------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: Any,
        key: Sequence[str] | str | None = None,
        partition_by: Sequence[str] | str = (),
        if_exists: str = "error",
        *,
        cluster_by: Sequence[str] | str = (),
        bloom: Sequence[str] | str = (),
    ) -> RemoteTable:
        """Make a table; needs no Spark.

        `schema` is a pyarrow.Schema, a Pydantic model class or a JSON Schema. Raises CallerError if it cannot be
        kept, Conflict if the table exists with another definition, or at all unless `if_exists="ok"`.
        """
        from crannog.delta.schemas import column_names, user_schema
        from crannog.remote.arrow_bodies import packed_schema

        table_name = TableName.parse(name)
        chosen = {"key": key, "partition_by": partition_by, "cluster_by": cluster_by, "bloom": bloom}
        params: dict[str, str | list[str] | None] = {
            role: list(column_names(given, role)) for role, given in chosen.items()
        }
        self._connection.check_open()
        self._connection.ask(
            "PUT",
            f"/tables/{table_name}",
            params={**params, "if_exists": checked_if_exists(if_exists)},
            content=packed_schema(user_schema(schema)),
            headers={"Content-Type": ARROW},
            # Made at a try whose answer was lost, it would be in its own way: only "ok" may be sent again.
            tries=WRITE_TRIES if if_exists == "ok" else ONE_TRY,
        )
        return RemoteTable(self._connection, table_name)

    def table(self, name: str) -> RemoteTable:
        """Return a table; NotFound if there is none. `catalog.schema.__raw__table` shows deleted rows until they are folded."""
        plain, raw = without_raw_prefix(name)
        table = RemoteTable(self._connection, TableName.parse(plain), raw=raw)
        self._connection.check_open()
        table.find()
        return table

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        return [
            table["name"]
            for table in self._connection.ask("GET", "/tables", params={"system": "true"}, tries=READ_TRIES).json()
        ]

    def drop_table(self, name: str) -> None:
        """Remove a table and all its files; NotFound if there is none, Refused if it is one of Crannog's own."""
        self._connection.ask("DELETE", f"/tables/{TableName.parse(name)}")

    # -- queries ---------------------------------------------------------------------------------------------

    def sql(
        self,
        text: str,
        max_rows: int | None = None,
        engine: str = "auto",
        timeout_s: float | None = None,
        query_id: str | None = None,
    ) -> Result:
        """Run one read-only statement of Spark SQL and return its answer, the same whichever engine gives it.

        `max_rows` None means the server's `sql_max_rows` (10,000); `truncated` tells that there was more. `engine` is
        "auto", "hot", "local" or "spark". Raises as embedded. One that is interrupted here is cancelled there.
        """
        from crannog.api.result import Result
        from crannog.remote.arrow_bodies import table_of

        asked: dict[str, Any] = {}

        def question() -> dict[str, Any]:
            # With an id of its own each time: the query whose answer was lost may still run.
            asked.update(_query(text, engine, timeout_s, query_id, max_rows=checked_max_rows(max_rows)))
            return asked

        tries = READ_TRIES if query_id is None else ONE_TRY
        try:
            answer = self._connection.ask(
                "POST", "/sql", document=question, headers={"Accept": ARROW}, tries=tries, read_s=None
            )
        except KeyboardInterrupt:
            if asked:
                self._take_back(asked["query_id"])
            raise
        told = answer.headers
        return Result(
            table_of(answer.content),
            told["Crannog-Engine"],
            told["Crannog-Truncated"] == "true",
            float(told["Crannog-Elapsed-Ms"]),
            unquote(told["Crannog-Query-Id"]),
            unquote(told["Crannog-Why"]),
        )

    def stream(
        self, text: str, engine: str = "auto", timeout_s: float | None = None, query_id: str | None = None
    ) -> Stream:
        """Run a statement and return its answer as Arrow batches, never held whole. Close it, or read it to its end."""
        from crannog.remote.streaming import opened_stream

        return opened_stream(self._connection, _query(text, engine, timeout_s, query_id))

    def explain(self, text: str, engine: str = "auto", *, analyze: bool = False) -> Explanation:
        """Tell which engine would answer and why, what is pruned by what, and the plan; `analyze` runs it too."""
        from dataclasses import replace

        from crannog.api.explanation import Explanation, TableReport

        told = self._connection.ask(
            "POST",
            "/sql/explain",
            document={"sql": text, "engine": checked_engine(engine)},
            tries=READ_TRIES,
            read_s=None,
        ).json()
        reports = tuple(read_as(TableReport, report) for report in told["tables"])
        found = Explanation(told["engine"], told["why"], reports, told["plan"])
        return replace(found, result=self.sql(text, engine=found.engine)) if analyze else found

    def cancel(self, query_id: str) -> None:
        """End a query that runs or waits; NotFound if there is none by this id."""
        self._connection.ask("DELETE", f"/sql/{quote(str(query_id), safe='')}")

    def _take_back(self, query_id: str) -> None:
        from contextlib import suppress

        from crannog.errors import CrannogError

        with suppress(CrannogError):
            self.cancel(query_id)

    def tasks(self) -> list[dict[str, Any]]:
        """Return the control table: state, owner, last result and next run of each maintenance task."""
        found = self._connection.ask("GET", "/tasks", tries=READ_TRIES).json()
        return [{**task, **{name: moment(task[name]) for name in _TIMES}} for task in found]

    # -- the connection --------------------------------------------------------------------------------------

    def producer(self, name: str, model: type[BaseModel] | None = None, **options: Any) -> Producer:
        """Return a producer of a table, which sends rows in batches behind the scenes; see `crannog.Producer`."""
        from crannog.api.producer import Producers

        self._producers = self._producers or Producers()
        return self._producers.make(self.table(name), model, **options)

    def load(self, files: Sequence[str] | str, name: str, **options: Any) -> LoadReport:
        """Load files of this machine (names, patterns, `-`) into a table, each once; see `LakeVerbs.load` for the options."""
        from crannog.tables.loading.load import load
        from crannog.tables.loading.options import LoadOptions

        watch = {part: options.pop(part, None) for part in ("progress", "cancellation")}
        return load(self, files, name, LoadOptions.checked(**options), **watch)

    def close(self) -> None:
        """End the connection: acknowledged changes are durable already; what producers hold is sent first."""
        if self._producers is not None:
            self._producers.close()
        self._connection.close()

    def __enter__(self) -> RemoteLake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteLake({self.address!r})"


def _query(text: str, engine: str, timeout_s: float | None, query_id: str | None, **more: Any) -> dict[str, Any]:
    # Always with an id: whoever is interrupted can take the query back.
    return {
        "sql": text,
        "engine": checked_engine(engine),
        "timeout_s": checked_timeout(timeout_s),
        "query_id": checked_query_id(query_id),
        **more,
    }
