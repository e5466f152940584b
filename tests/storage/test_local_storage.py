"""The stamp that tells, in one look, that a folder is as it was."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from crannog.errors import Unavailable
from crannog.storage import local
from crannog.storage.local import LocalStorage


def aged(folder: Path) -> None:
    """Make the last change of a folder look an hour old."""
    past = time.time_ns() - 3600 * 10**9
    os.utime(folder, ns=(past, past))


def test_a_folder_that_changed_just_now_has_no_stamp(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.make_folder("stage")
    assert storage.change_stamp("stage") is None
    aged(tmp_path / "stage")
    assert storage.change_stamp("stage") is not None
    assert storage.change_stamp("missing") is None


@pytest.mark.parametrize("change", ["put", "delete", "rename"])
def test_any_change_of_the_names_changes_the_stamp(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.make_folder("stage")
    storage.put_if_absent("stage/1", b"one")
    aged(tmp_path / "stage")
    before = storage.change_stamp("stage")
    assert before == storage.change_stamp("stage")
    match change:
        case "put":
            assert storage.put_if_absent("stage/2", b"two")
        case "delete":
            storage.delete(["stage/1"])
        case "rename":
            (tmp_path / "stage/1").rename(tmp_path / "stage/3")
    assert storage.change_stamp("stage") is None  # another change within the same tick could leave the same time
    monkeypatch.setattr(local, "_SETTLED_AFTER_NS", 0)
    assert storage.change_stamp("stage") != before


def test_a_place_where_no_folder_can_be_made_is_told() -> None:
    with pytest.raises(Unavailable, match=r"cannot create the folder /proc/nowhere/t: .*choose another location"):
        LocalStorage(Path("/proc/nowhere")).make_folder("t")
