"""One table of a server. Rows become Arrow here, by the engine's own rules, so that what is wrong is told in the same words."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from crannog.api.arguments import checked_limit
from crannog.api.batch_ids import checked_batch_id
from crannog.api.cancellation import Cancellation
from crannog.api.reports import (
    CompactReport,
    ErasureReceipt,
    EvolveReport,
    ExpireReport,
    FoldReport,
    Progress,
    VacuumReport,
    WriteReceipt,
)
from crannog.errors import BadRows, Conflict, SchemaMismatch
from crannog.names import TableName
from crannog.remote.connection import ARROW, READ_TRIES, WRITE_TRIES, Connection, Params
from crannog.remote.jobs import run_job

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Definition:
    """What must be known of a table to send it rows."""

    schema: pa.Schema
    user_schema: pa.Schema
    key: tuple[str, ...]


class RemoteTable:
    """A table of a server. Stands for a name; safe for threads."""

    def __init__(self, connection: Connection, name: TableName, *, raw: bool = False) -> None:
        self._connection = connection
        self._name = name
        self._raw = raw
        self._told: tuple[bytes, str] | None = None
        self._known: Definition | None = None

    @property
    def name(self) -> str:
        return str(self._name)

    @property
    def _path(self) -> str:
        return f"/tables/{self.name}"

    # -- what it is ------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Ask for the columns and the key as they are now; NotFound if there is no such table."""
        answer = self._connection.ask("GET", f"{self._path}/schema", headers={"Accept": ARROW}, tries=READ_TRIES)
        told = (answer.content, answer.headers["Crannog-Key"])
        if told != self._told:
            self._told, self._known = told, None

    def look(self) -> Definition:
        """Return the columns and the key as they are now; the same object while they stay the same."""
        self.find()
        return self._definition()

    def _definition(self) -> Definition:
        if self._told is None:
            self.find()
        known = self._known
        if known is None:
            # Only now: whoever asks for figures alone need not load Arrow.
            from crannog.delta.schemas import user_columns
            from crannog.remote.arrow_bodies import schema_of

            assert self._told is not None
            schema = schema_of(self._told[0])
            self._known = known = Definition(schema, user_columns(schema), tuple(json.loads(self._told[1])))
        return known

    @property
    def schema(self) -> pa.Schema:
        """The columns, the system's included."""
        return self.look().schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.look().key

    def describe(self) -> dict[str, Any]:
        """Tell what the table is and how it stands."""
        told = self._json("")
        return {**told, "created_at": moment(told["created_at"])}

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """List the versions of the base, newest first."""
        return list(self._json("/history", {"limit": None if limit is None else str(limit)}))

    def audit(self) -> list[dict[str, Any]]:
        """List the deletes that were carried out: who, why, when, and a keyed hash of the key."""
        return [{**entry, "deleted_at": moment(entry["deleted_at"])} for entry in self._json("/audit")]

    def _json(self, part: str, params: Params | None = None) -> Any:
        return self._connection.ask("GET", f"{self._path}{part}", params=params, tries=READ_TRIES).json()

    # -- writing ---------------------------------------------------------------------------------------------

    def append(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Keep rows; durable and visible when it returns. On a table with a key this is `upsert`.

        As embedded; Unavailable also if no server answers, after some tries with the same batch id.
        """
        return self._write("POST", "append", rows, batch_id)

    def upsert(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Keep rows, each replacing the row of its key; CallerError on a table without a key."""
        if not self._definition().key and not self.look().key:
            self._refused_without_key("PUT", "/rows", [])
        return self._write("PUT", "upsert", rows, batch_id)

    def _write(self, method: str, verb: str, rows: Any, batch_id: str | None) -> WriteReceipt:
        from crannog.engine.rows import to_arrow

        batch = checked_batch_id(batch_id)
        receipt = self._fitting(
            lambda known: self._sent(
                method, "/rows", to_arrow(rows, known.user_schema, table=self.name, verb=verb), batch
            )
        )
        # Kept at a try whose answer was lost: for the caller it is the first time all the same.
        return replace(receipt, duplicate=False) if batch_id is None else receipt

    def delete(self, keys: Any, actor: str = "", reason: str = "", batch_id: str | None = None) -> WriteReceipt:
        """Hide the rows of these keys at once from every query of Crannog; the next fold takes them out of the base.

        Readers of the Delta table itself, without Crannog, see the rows until that fold; call `fold` if they must not.
        """
        batch, note = checked_batch_id(batch_id), {"actor": actor, "reason": reason}
        receipt = self._fitting(
            lambda known: self._sent("POST", "/delete", self._keys(known, keys, "delete"), batch, note)
        )
        return replace(receipt, duplicate=False) if batch_id is None else receipt

    def _keys(self, known: Definition, keys: Any, verb: str) -> pa.Table:
        from crannog.engine.rows import keys_to_arrow

        if not known.key:
            known = self.look()
        if not known.key:
            self._refused_without_key("POST", f"/{verb}", {"keys": []})
        return keys_to_arrow(keys, known.user_schema, known.key, table=self.name, verb=verb)

    def _refused_without_key(self, method: str, part: str, document: Any) -> None:
        """Let the server say in its own words that there is no key."""
        self._connection.ask(method, f"{self._path}{part}", document=document)
        raise Conflict(f"table {self.name} was made anew under this call, with a key; nothing was done, call again")

    def _fitting(self, act: Callable[[Definition], T]) -> T:
        known = self._definition()
        try:
            return act(known)
        except (SchemaMismatch, BadRows):
            # The table may have evolved, or been made anew: look once before refusing.
            fresh = self.look()
            if fresh is known:
                raise
            return act(fresh)

    def _sent(self, method: str, part: str, rows: pa.Table, batch: str, params: Params | None = None) -> WriteReceipt:
        from crannog.remote.arrow_bodies import packed

        headers, params = {"Content-Type": ARROW}, dict(params or {})
        if batch.isascii() and batch.isprintable() and batch == batch.strip():
            headers["Crannog-Batch-Id"] = batch
        else:
            params["batch_id"] = batch  # a header holds ASCII, a batch id any text
        answer = self._connection.ask(
            method, f"{self._path}{part}", content=packed(rows), headers=headers, params=params, tries=WRITE_TRIES
        )
        return WriteReceipt(**answer.json())

    # -- the pipeline ----------------------------------------------------------------------------------------

    def erase(
        self,
        keys: Any,
        actor: str = "",
        reason: str = "",
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ErasureReceipt:
        """Remove these keys from every file of the table and prove it; VerificationFailed if one is still readable."""
        from crannog.remote.arrow_bodies import packed

        return self._fitting(
            lambda known: run_job(
                self._connection,
                f"{self._path}/erase",
                ErasureReceipt,
                content=packed(self._keys(known, keys, "erase")),
                params={"actor": actor, "reason": reason},
                headers={"Content-Type": ARROW},
                progress=progress,
                cancellation=cancellation,
            )
        )

    def _job(
        self,
        part: str,
        kind: type[T],
        document: dict[str, Any],
        progress: Progress | None,
        cancellation: Cancellation | None,
    ) -> T:
        return run_job(
            self._connection,
            f"{self._path}/{part}",
            kind,
            document=document,
            progress=progress,
            cancellation=cancellation,
        )

    def fold(self, *, progress: Progress | None = None, cancellation: Cancellation | None = None) -> FoldReport:
        """Bring everything staged into the base, once."""
        return self._job("fold", FoldReport, {}, progress, cancellation)

    def compact(
        self, *, dry_run: bool = False, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> CompactReport:
        """Fold, then merge small files into large, clustered ones. A vacuum at the floor follows by itself."""
        return self._job("compact", CompactReport, {"dry_run": dry_run}, progress, cancellation)

    def vacuum(
        self, retention_hours: float | None = None, *, force: bool = False, dry_run: bool = False
    ) -> VacuumReport:
        """Delete files that left the base longer than the retention ago; never below the floor unless forced."""
        wanted = {"retention_hours": retention_hours, "force": force, "dry_run": dry_run}
        return self._job("vacuum", VacuumReport, wanted, None, None)

    def expire(
        self,
        before: dt.date,
        *,
        column: str | None = None,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ExpireReport:
        """Drop the rows before a date."""
        day = before.isoformat() if isinstance(before, dt.date) else before
        return self._job("expire", ExpireReport, {"before": day, "column": column}, progress, cancellation)

    def evolve(
        self, schema: Any, *, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> EvolveReport:
        """Add nullable columns or widen types; anything else is refused with the reason."""
        from crannog.delta.schemas import user_schema
        from crannog.remote.arrow_bodies import packed_schema

        return run_job(
            self._connection,
            f"{self._path}/evolve",
            EvolveReport,
            content=packed_schema(user_schema(schema)),
            headers={"Content-Type": ARROW},
            progress=progress,
            cancellation=cancellation,
        )

    # -- reading ---------------------------------------------------------------------------------------------

    def tombstones(self) -> list[dict[str, Any]]:
        """List the deletes that are not folded yet: key, who, why, when, and whether the key was there."""
        return list(self._arrow("/tombstones").to_pylist())

    def preview(self, n: int = 100, raw: bool = False) -> pa.Table:
        """Return some rows; `raw` shows deleted ones too until they are folded."""
        return self._arrow("/preview", {"n": str(checked_limit(n)), "raw": self._raw_word(raw)})

    def to_arrow(self, *, raw: bool = False) -> pa.Table:
        """Return all rows."""
        return self._arrow("/rows", {"raw": self._raw_word(raw)}, read_s=None)

    def count(self, *, raw: bool = False) -> int:
        """Return the number of rows."""
        return int(self._json("/count", {"raw": self._raw_word(raw)})["rows"])

    def _raw_word(self, raw: bool) -> str:
        return "true" if raw or self._raw else "false"

    def _arrow(self, part: str, params: Params | None = None, read_s: float | None = 300.0) -> pa.Table:
        from crannog.remote.arrow_bodies import table_of

        path = f"{self._path}{part}"
        answer = self._connection.ask(
            "GET", path, params=params, headers={"Accept": ARROW}, tries=READ_TRIES, read_s=read_s
        )
        return table_of(answer.content)

    def __repr__(self) -> str:
        return f"RemoteTable({self.name!r}, {self._connection.address!r})"


def moment(text: str | None) -> dt.datetime | None:
    """Read a time that travelled as text."""
    return None if text is None else dt.datetime.fromisoformat(text)
