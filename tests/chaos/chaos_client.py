"""A client of a chaos run: a process that works on the warehouse, keeps its journal, and is killed or paused.

It opens the warehouse itself and also sends some acts to the server. An act that fails is sent again with the same
batch id until it is acknowledged. Jobs that the client runs write their files without Spark, in milliseconds, so that
every failpoint of a job is reached thousands of times; the server runs the same jobs with Spark.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import chaos_faults
from chaos_acts import (
    ACTS_REACHING,
    KEYED,
    MAINTENANCE,
    ROWS,
    SCHEMA,
    SPANS,
    WRITES,
    Act,
    act_of,
    build_events,
    keys_of,
    otlp_body,
    table_rows,
    text_of,
)
from chaos_journal import Journal

SETTINGS: dict[str, Any] = {"fold_grace_s": 0, "lease_wait_s": 1, "spark_memory_mb": 1024}
_REQUEST_S, _PAUSE_S = 5.0, 0.002
_WRITES_BEFORE = 3
_APPENDS_FOR_A_PACK = 130


def die_with_parent() -> None:
    """End this process when the runner ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def make_tables(lake: Any) -> None:
    lake.create_table(ROWS, SCHEMA, if_exists="ok")
    lake.create_table(KEYED, SCHEMA, key=["id"], if_exists="ok")


def open_lake(location: str, *, races: bool = False) -> Any:
    """Open the warehouse in this process, with jobs that do without Spark.

    A process that `races` does not take turns with the others of this machine: put-if-absent alone decides.
    """
    import pytest

    import crannog
    from crannog.engine.open_table import OpenTable
    from forcing import stand_in_for_spark

    patch = pytest.MonkeyPatch()
    stand_in_for_spark(patch)
    if races:
        patch.setattr(OpenTable, "handover_folder", None)
    return crannog.connect(location, **SETTINGS)


class Client:
    """One life of a client."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.name = plan["client"]
        self.journal = Journal(Path(plan["journal"]))
        self._pid = os.getpid()
        self._remote: tuple[str, Any] | None = None

    def run(self) -> None:
        from crannog.errors import CrannogError

        chaos_faults.install(self.plan, self.journal.write)
        while True:
            try:
                self.lake = open_lake(self.plan["location"], races=self.plan["races"])
                break
            except CrannogError as error:  # the disk is full, the storage fails
                self._note_error(-1, error)
                time.sleep(0.05)
        chaos_faults.make_unreliable(self.lake, self.plan, self.journal.write)
        if self.plan["folds_first"]:  # what is in doubt may be folded by the time it is sent again
            for table in (ROWS, KEYED, SPANS):
                with suppress(CrannogError):
                    self.lake.table(table).fold()
        for line in self.plan["resolve"]:
            self.perform(Act.from_dict(self.name, line), repeated=True)
        generations = {int(place): count for place, count in self.plan["generations"].items()}
        for number, turn in enumerate(range(self.plan["turn"], self.plan["turn"] + self.plan.get("turns", 10**6))):
            kind = self._wanted_kind(number)
            act = act_of(self.plan["seed"], self.name, turn, generations, kind)
            if kind is not None:
                act = replace(act, remote=False)  # the failpoint is to be reached here, not in the server
            self.perform(act)
            if act.kind == "erase":
                place = int(act.group.split("-")[2])
                generations[place] = generations.get(place, 0) + 1
            time.sleep(0.0 if kind == "append" else _PAUSE_S)

    def _wanted_kind(self, number: int) -> str | None:
        """Lead to the failpoint of the plan, after a few writes."""
        failpoint = self.plan.get("failpoint") or self.plan.get("pause_at")
        family = failpoint.partition(".")[0] if failpoint is not None else ""
        if family == "pack":  # the sequences of a block, all of them after the last fold
            return "append" if (number + 1) % _APPENDS_FOR_A_PACK else "pack"
        if failpoint is None or number < _WRITES_BEFORE or number % 2:
            return None
        if family in ("clean", "vacuum") and number % 4:
            return "compact"
        return ACTS_REACHING[family]

    def perform(self, act: Act, *, repeated: bool = False) -> None:
        """Write the intent, act until it is acknowledged, write the acknowledgement; jobs may fail for good."""
        from crannog.errors import CallerError, CrannogError

        if not repeated:
            self.journal.write(**act.as_dict())
        remote = act.remote and Path(self.plan["server"]).exists()
        for attempt in range(1_000):
            try:
                if remote and act.kind == "spans":
                    answer = self._post_spans(act)
                else:
                    answer = self._call(self._remote_lake() if remote else self.lake, act)
                self.journal.write(ack=act.turn, remote=remote, attempts=attempt + 1, **(answer or {}))
                return
            except CrannogError as error:
                self._note_error(act.turn, error)
                if isinstance(error, CallerError) and type(error).__name__ not in ("NotFound", "Conflict"):
                    raise
                if act.kind in ("fold", "compact", "vacuum", "pack", "claim"):
                    return
                remote = False  # a server that is gone may stay away for long
                self._remote = None
                time.sleep(min(0.5, 0.01 * 2**attempt))

    def _note_error(self, turn: int, error: Exception) -> None:
        self.journal.write(error=type(error).__name__, turn=turn, message=str(error)[:300])

    def _call(self, lake: Any, act: Act) -> dict[str, Any] | None:
        call: Callable[[Any, Act], dict[str, Any] | None] = getattr(self, f"_{act.kind}")
        return call(lake, act)

    # -- acts ---------------------------------------------------------------------------------------------------

    def _append(self, lake: Any, act: Act) -> dict[str, Any]:
        return _receipt(lake.table(ROWS).append(table_rows(act), batch_id=act.batch_id))

    def _upsert(self, lake: Any, act: Act) -> dict[str, Any]:
        receipt = _receipt(lake.table(KEYED).upsert(table_rows(act), batch_id=act.batch_id))
        if act.turn % 8 == 0:
            self._read_back(lake, act)
        return receipt

    def _read_back(self, lake: Any, act: Act) -> None:
        """A row is visible when its write returns: nobody else writes this group."""
        found = lake.sql(f"SELECT id, turn, text FROM {KEYED} WHERE id LIKE '{act.group}%'").rows()
        wanted = sorted((name, act.turn, text_of(name, act.turn)) for name in keys_of(act.group))
        if sorted(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in found) != wanted:
            self.journal.write(torn=f"{act.group} after the acknowledged turn {act.turn} reads {found}")

    def _delete(self, lake: Any, act: Act) -> dict[str, Any]:
        keys = [{"id": name} for name in keys_of(act.group)]
        return _receipt(lake.table(KEYED).delete(keys, actor="chaos", reason="turn", batch_id=act.batch_id))

    def _erase(self, lake: Any, act: Act) -> dict[str, Any]:
        receipt = lake.table(KEYED).erase([{"id": name} for name in keys_of(act.group)], actor="chaos", reason="turn")
        return {"erased": receipt.rows_erased}

    def _spans(self, lake: Any, act: Act) -> None:
        lake.traces.write_otlp(otlp_body(act))

    def _post_spans(self, act: Act) -> None:
        """Send spans as an exporter does."""
        import httpx

        from crannog.errors import Unavailable

        try:
            answer = httpx.post(
                f"{self._server()['otlp']}/v1/traces",
                content=otlp_body(act),
                headers={"Content-Type": "application/x-protobuf"},
                timeout=_REQUEST_S,
                trust_env=False,
            )
        except httpx.HTTPError as error:
            raise Unavailable(f"cannot send spans: {error!r}") from error
        if answer.status_code != 200:
            raise Unavailable(f"cannot send spans: {answer.status_code} {answer.text[:200]}")

    def _build(self, lake: Any, act: Act) -> dict[str, Any]:
        return {"indexes": lake.builds.append_events(build_events(act))}

    def _fold(self, lake: Any, act: Act) -> None:
        lake.table((ROWS, KEYED, SPANS)[act.turn % 3]).fold()

    def _compact(self, lake: Any, act: Act) -> None:
        lake.table((ROWS, KEYED)[act.turn % 2]).compact()

    def _vacuum(self, lake: Any, act: Act) -> None:
        table = lake.table((ROWS, KEYED)[act.turn % 2])
        table.vacuum(0, force=True) if act.rows > 1 else table.vacuum()

    def _pack(self, _: Any, act: Act) -> None:
        from crannog.names import TableName

        self.lake.operations.tables.open(TableName.parse((ROWS, KEYED)[act.turn % 2])).log.pack()

    def _claim(self, _: Any, act: Act) -> None:
        control, name = self.lake.operations.control, f"work:{act.batch_id}"
        if (lease := control.claim(name, act.client)) is not None:
            with lease:
                control.release(name, act.client, result={}, interval_s=3600)

    # -- the server ---------------------------------------------------------------------------------------------

    def _server(self) -> dict[str, str]:
        from crannog.errors import Unavailable

        try:
            return dict(json.loads(Path(self.plan["server"]).read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise Unavailable("there is no server") from error

    def _remote_lake(self) -> Any:
        from crannog.remote.lake import RemoteLake

        # A stopped server holds the client until somebody kills it; its next life sends the same act again.
        url = self._server()["url"]
        if self._remote is None or self._remote[0] != url:
            self._remote = (url, RemoteLake(url))
        return self._remote[1]


def _receipt(receipt: Any) -> dict[str, Any]:
    return {"sequence": receipt.sequence, "duplicate": receipt.duplicate}


def rehearse(work: Path) -> None:
    """Perform each act once in a warehouse of its own, and write down which modules that took."""
    location, missing = str(work / "warehouse"), str(work / "no server")
    plan = {"client": "c0", "seed": "", "location": location, "journal": str(work / "journal"), "server": missing}
    client = Client(plan)
    client.lake = open_lake(location)
    make_tables(client.lake)
    for turn, kind in enumerate([*WRITES, *MAINTENANCE, *WRITES]):
        client.perform(act_of("", "c0", 8 * turn, {}, kind))
    import crannog.remote.lake

    assert crannog.remote.lake
    (work / "modules").write_text(json.dumps([name for name in sys.modules if not name.startswith(("__", "_pytest"))]))
