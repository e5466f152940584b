"""Places outside of the table's current files where an erased key could stay or come back; read as plain files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crannog.lake import local_storage, phases, spare_files
from crannog.lake.changelog import ChangeLog
from forcing import SCHEMA, Killed, Lakes, clean, fill_block, ids_of, opened, row

pytest_plugins = ["forced"]

NAME = "shop.eu.orders"
NEEDLE = "ann@example.org"
MOMENTS = {"before the temporary file": "open", "before its content": "write", "before its name": "link"}


class HookedOs:
    """The `os` of LocalStorage; once, right before a call of `function` for a path with `part`, `act` happens."""

    def __init__(self, function: str, part: str, act: Callable[[], object]) -> None:
        self._function, self._part, self._act = function, part, act
        self._paths: dict[int, str] = {}
        self.fired = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("open", "write", "pwrite", "link"):
            return found

        def call(first: Any, *arguments: Any, **options: Any) -> Any:
            path = self._paths.get(first, "") if isinstance(first, int) else str(first)
            if name.removeprefix("p") == self._function and self._part in path and path.endswith(".tmp") and not self.fired:
                self.fired = True
                self._act()
            result = found(first, *arguments, **options)
            if name == "open":
                self._paths[result] = path
            return result

        return call


def showing(root: Path) -> list[str]:
    """Every file of the warehouse, hidden ones included, whose bytes show the key."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return [str(path.relative_to(root)) for path in files if NEEDLE.encode() in path.read_bytes()]


# -- late puts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_paused_packer_cannot_put_an_erased_row_again(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It read the staged files before the erase and goes on after the proof; what it does then, it does while it dies."""
    monkeypatch.setattr(ChangeLog, "wants_packing", False)
    table, packing = lakes().create_table(NAME, SCHEMA, key="id"), lakes().table(NAME)
    table.append([row(1, NEEDLE)])
    others = fill_block(table, 63)
    receipts = []

    def erased() -> None:
        receipts.append(table.erase([1]))
        assert showing(lakes.root) == []
        monkeypatch.setattr(phases, "watcher", killed)

    def killed(phase: str) -> None:
        if phase == "pack.written":
            raise Killed

    hook = HookedOs(MOMENTS[moment], "pack-64", erased)
    monkeypatch.setattr(local_storage, "os", hook)
    try:
        opened(packing).log.pack()
    except Killed:
        pass
    monkeypatch.setattr(phases, "watcher", None)
    assert hook.fired
    assert showing(lakes.root) == []
    assert {place.after for place in receipts[0].places} == {0}
    for each in (table, packing, lakes().table(NAME)):
        assert ids_of(each) == others


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("prepared", [False, True], ids=["new file", "spare file"])
def test_a_paused_writer_cannot_put_an_erased_row_again(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch, moment: str, prepared: bool
) -> None:
    """A client sent its batch twice: one process keeps it and it is erased, the other still has it in its hands."""
    table, late = lakes().create_table(NAME, SCHEMA, key="id"), lakes().table(NAME)
    table.append([row(2)])
    assert ids_of(late) == [2]
    if prepared:
        opened(late).log.prepare()

    def erased() -> None:
        table.append([row(1, NEEDLE)], batch_id="sent twice")
        table.erase([1])
        clean(table)
        assert showing(lakes.root) == []

    hook = HookedOs(MOMENTS[moment], "/spare/" if prepared else "/stage/", erased)
    monkeypatch.setattr(local_storage, "os", hook)
    monkeypatch.setattr(spare_files, "os", hook)
    receipt = late.append([row(1, NEEDLE)], batch_id="sent twice")
    assert hook.fired
    assert receipt.duplicate
    assert showing(lakes.root) == []
    assert ids_of(table) == ids_of(late) == [2]
