"""A sync that fails once: the system forgets what it could not write, and says yes the next time.

The disk here does just that. What is acknowledged must survive a power cut, which leaves the names that a successful sync
of their folder has covered since they were last changed, and nothing else.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from crannog.embedded import EmbeddedTable as Table
from crannog.errors import CrannogError, Unavailable
from crannog.storage import local
from crannog.storage.local import LocalStorage
from forcing import SCHEMA, Behind, Lakes, failure_of, ids_of, opened, row

pytest_plugins = ["forced"]

NAME = "shop.eu.orders"


class ForgetfulDisk:
    """The `os` of LocalStorage: the next `failures` syncs of a folder whose path ends with `folder` fail."""

    def __init__(self, folder: str, failures: int) -> None:
        self._folder, self.failures = folder, failures
        self._changed: set[str] = set()
        self.lost: set[str] = set()
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def link(self, source: str, target: str, **at: Any) -> None:
        os.link(source, target, **at)
        self._change(target, at.get("dst_dir_fd"))

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)
        self._change(target, None)

    def _change(self, target: str, folder: int | None) -> None:
        path = target if folder is None else f"{os.readlink(f'/proc/self/fd/{folder}')}/{target}"
        self._changed.add(path)

    def fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        covered = {name for name in self._changed if name.rpartition("/")[0] == path}
        self._changed -= covered
        if self.failures and covered and path.endswith(self._folder):
            self.failures -= 1
            self.failed += 1
            self.lost |= covered
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.lost -= covered
        os.fsync(descriptor)

    def cut_power(self) -> None:
        for path in self.lost | self._changed:
            Path(path).unlink(missing_ok=True)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(folder: str, failures: int) -> ForgetfulDisk:
        made = ForgetfulDisk(folder, failures)
        monkeypatch.setattr(local, "os", made)
        return made

    return of


def sent_until_kept(table: Table, *, tries: int = 5) -> int:
    """Send a batch as a client does, again and again with its id; return how often it was refused."""
    for refused in range(tries):
        error = failure_of(lambda: table.append([row(2)], batch_id="two"))
        if error is None:
            return refused
        assert isinstance(error, Unavailable)
        assert "stage" in error.message, "the file or folder is named"
    raise AssertionError("it was never kept")


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_change_is_acknowledged_only_after_a_sync_that_means_something(
    lakes: Lakes, disk: Any, failures: int
) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    table.append([row(1)])
    broken = disk("/stage", failures)
    sent_until_kept(table)
    assert broken.failed == failures
    broken.cut_power()
    assert ids_of(lakes().table(NAME)) == [1, 2]


@pytest.mark.parametrize("failures", [2, 3])
def test_a_repetition_at_another_process_too(lakes: Lakes, disk: Any, failures: int) -> None:
    """The first process had the failures for itself; the other one sees a file and knows nothing of them."""
    table, other = lakes().create_table(NAME, SCHEMA), lakes().table(NAME)
    table.append([row(1)])
    assert ids_of(other) == [1]
    broken = disk("/stage", failures)
    assert isinstance(failure_of(lambda: table.append([row(2)], batch_id="two")), Unavailable)
    sent_until_kept(other)
    broken.cut_power()
    assert ids_of(lakes().table(NAME)) == [1, 2]


@pytest.mark.parametrize("failures", [1, 2])
def test_a_fold_is_done_only_after_a_sync_that_means_something(
    lakes: Lakes, arrow: None, disk: Any, failures: int
) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    table.append([row(1)])
    broken = disk("/_delta_log", failures)
    try:
        table.fold()
        succeeded = True
    except CrannogError:
        succeeded = False
    assert broken.failed == failures
    assert succeeded == (failures == 1)
    broken.cut_power()
    assert Behind(lakes.root, NAME).folded() == (1 if succeeded else 0)
    assert ids_of(lakes().table(NAME)) == [1]


def test_a_repetition_of_what_this_process_synced_itself_costs_no_sync(lakes: Lakes, disk: Any) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    table.append([row(1)], batch_id="one")
    before = (Behind(lakes.root, NAME).stage / f"{1:020}.parquet").stat().st_ino
    assert table.append([row(1)], batch_id="one").duplicate
    assert (Behind(lakes.root, NAME).stage / f"{1:020}.parquet").stat().st_ino == before


def test_a_repetition_that_was_folded_meanwhile_brings_no_file_back(lakes: Lakes, arrow: None) -> None:
    table, other = lakes().create_table(NAME, SCHEMA), lakes().table(NAME)
    table.append([row(1)], batch_id="one")
    log = opened(other).log
    log.refresh()
    table.fold()
    for path in Behind(lakes.root, NAME).stage.iterdir():
        path.unlink()
    assert other.append([row(1)], batch_id="one").duplicate
    assert Behind(lakes.root, NAME).staged_names() == []


def test_a_folder_whose_making_was_not_synced_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    synced: list[str] = []

    def fail_once(path: str, folder: int | None = None) -> None:
        synced.append(path)
        if len(synced) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(local, "sync_path", fail_once)
    with pytest.raises(Unavailable, match="cannot create the folder a/b"):
        storage.make_folder("a/b")
    synced.clear()
    synced += ["", ""]
    storage.make_folder("a/b")
    assert {f"{tmp_path}/a", str(tmp_path)} <= set(synced), "both are synced again"
    assert (tmp_path / "a/b").is_dir()
