"""The processes of a chaos run that look: a checker after each round, and a reader beside the clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import crannog
from chaos_acts import BUILDS, KEYED, ROWS, SPANS
from chaos_client import SETTINGS, open_lake
from chaos_files import TokenSearch, exists, files_at, state_of
from chaos_journal import History, Journal
from chaos_oracle import compare, erased_groups

COLUMNS = ["id", "turn", "text"]
# A server on a bucket may read from a snapshot of this age (setting refresh_ms).
_STALE_S = 1.2


def check(location: str, histories: Sequence[History], answer: Path) -> None:
    """Compare the warehouse with the journals, as Crannog reads it and as its files are; write what was found."""
    for history in histories:
        history.read(answer.parent / f"{history.client}.journal")
    contents = {"Crannog": read_by_crannog(location, SETTINGS), "files": read_files(location)}
    with suppress(FileNotFoundError, crannog.CrannogError):  # no server, or one whose storage fails on purpose
        address = json.loads((answer.parent / "server.json").read_text())["url"]
        if location.startswith("s3://"):
            time.sleep(_STALE_S)
        contents["the server"] = read_by_crannog(address, {})
    found = {how: compare(histories, read).all() for how, read in contents.items()}
    files = TokenSearch(files_at(location)).everywhere()
    back = [f"{group} is in {files[group][0]}" for group in sorted(erased_groups(histories)) if group in files]
    if back:
        found["files"]["erased_back"] = back
    answer.write_text(json.dumps({"found": found, "read_by": list(contents)}))


def read_by_crannog(location: str, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Read everything through a fresh connection, of this process or to the server, which has worked for long."""

    def rows(table: str, columns: Sequence[str]) -> list[Any]:
        try:
            read = lake.table(table).to_arrow().select(list(columns))
        except crannog.NotFound:
            return []
        return list(zip(*(read[name].to_pylist() for name in columns), strict=True))

    with crannog.connect(location, **settings) as lake:
        return {
            "rows": rows(ROWS, COLUMNS),
            "keyed": rows(KEYED, COLUMNS),
            "spans": _hex(rows(SPANS, ("trace_id", "span_id"))),
            "builds": rows(BUILDS, ("index", "event_id")),
        }


def read_files(location: str) -> dict[str, list[Any]]:
    """Read everything without Crannog."""
    files = files_at(location)

    def rows(table: str, columns: list[str], key: str | None = None) -> list[Any]:
        return state_of(files, table, columns, key) if exists(files, table) else []

    return {
        "rows": rows(ROWS, COLUMNS),
        "keyed": rows(KEYED, COLUMNS, "id"),
        "spans": _hex(rows(SPANS, ["trace_id", "span_id"])),
        "builds": rows(BUILDS, ["index", "event_id"], "index"),
    }


def _hex(rows: Iterable[Sequence[bytes]]) -> list[Any]:
    return [tuple(value.hex() if isinstance(value, bytes) else value for value in row) for row in rows]


def settle(location: str) -> None:
    """Fold, compact and vacuum every table, so that the last check finds everything in the base."""
    with open_lake(location) as lake:
        for table in (ROWS, KEYED, SPANS, BUILDS):
            with suppress(crannog.NotFound):
                lake.table(table).compact()
                lake.table(table).vacuum()


def watch(plan: Mapping[str, Any]) -> None:
    """Read both tables all the time: whole batches, groups at one turn, and rows that never go away again."""
    journal = Journal(Path(plan["journal"]))
    with crannog.connect(plan["location"], **SETTINGS) as lake:
        seen = 0
        while True:
            try:
                seen = _look(lake, journal, seen)
                journal.write(reads=1)
            except crannog.CrannogError as error:
                journal.write(error=type(error).__name__, turn=-1, message=str(error)[:300])
            time.sleep(plan.get("pause_s", 0.15))


def _look(lake: Any, journal: Journal, seen: int) -> int:
    rows = lake.table(ROWS).to_arrow().select(["writer", "turn", "size"])
    batches = rows.group_by(["writer", "turn"]).aggregate([("size", "max"), ("size", "count")])
    for batch in batches.to_pylist():
        if batch["size_max"] != batch["size_count"]:
            journal.write(torn=f"a read showed {batch['size_count']} of {batch['size_max']} rows of {batch}")
    if rows.num_rows < seen:
        journal.write(torn=f"a read showed {rows.num_rows} rows after one that showed {seen}")
    keyed = lake.table(KEYED).to_arrow().select(["id", "turn"])
    groups: dict[str, list[int]] = {}
    for name, turn in zip(keyed["id"].to_pylist(), keyed["turn"].to_pylist(), strict=True):
        groups.setdefault(name.rpartition("-")[0], []).append(turn)
    for group, turns in groups.items():
        if len(turns) != 3 or len(set(turns)) != 1:
            journal.write(torn=f"a read showed {group} at the turns {turns}")
    return max(seen, rows.num_rows)
