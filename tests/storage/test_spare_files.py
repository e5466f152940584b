"""Spare files: what is put through one is whole, durable and alone under its name, and nothing stays behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import crannog
from crannog.errors import Unavailable
from crannog.storage import failpoints, local
from crannog.storage.local import PREALLOCATED_BYTES, LocalStorage, PreallocatedFiles

ONE, OTHER = b"1" * PREALLOCATED_BYTES, b"2" * PREALLOCATED_BYTES


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[LocalStorage]:
    opened = LocalStorage(tmp_path)
    opened.make_folder("t/stage")
    opened.preallocate("t/stage")
    yield opened
    opened.close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    def watch(phase: str, act: Callable[[], object]) -> None:
        """Do something once, when a write is at `phase`."""
        left = [act]
        monkeypatch.setattr(failpoints, "hook", lambda reached: left.pop()() if left and reached == phase else None)

    return watch


def spares(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "t/spare").glob("*"))


def test_what_is_put_uses_a_spare_up(storage: LocalStorage, tmp_path: Path) -> None:
    ready = {file.stat().st_ino for file in spares(tmp_path)}
    assert storage.is_preallocated("t/stage")
    assert storage.put_if_absent("t/stage/1", ONE)
    assert (tmp_path / "t/stage/1").read_bytes() == ONE
    used = (tmp_path / "t/stage/1").stat()
    assert used.st_ino in ready
    assert used.st_nlink == 1
    assert len(spares(tmp_path)) == len(ready) - 1


def test_a_name_that_is_taken_stays_as_it_is(storage: LocalStorage, tmp_path: Path) -> None:
    assert storage.put_if_absent("t/stage/1", ONE)
    assert not storage.put_if_absent("t/stage/1", OTHER)
    assert (tmp_path / "t/stage/1").read_bytes() == ONE
    assert {file.read_bytes() for file in spares(tmp_path)} == {
        bytes(PREALLOCATED_BYTES)
    }  # one that was written to is never used again


def test_the_content_is_synced_before_it_is_linked_and_the_folder_after(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[tuple[str, str]] = []

    def noted(name: str) -> None:
        act = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *arguments, **more: (acts.append((name, _place(arguments[0]))), act(*arguments, **more))[1]
        )

    for name in ("pwrite", "fdatasync", "link", "fsync"):
        noted(name)
    storage.put_if_absent("t/stage/1", ONE)
    spare = acts[0][1]
    assert acts == [("pwrite", spare), ("fdatasync", spare), ("link", spare), ("fsync", str(tmp_path / "t/stage"))]


def _place(file: object) -> str:
    return os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else str(file)


def test_what_has_another_length_or_finds_no_spare_is_put_as_ever(storage: LocalStorage, tmp_path: Path) -> None:
    before = len(spares(tmp_path))
    assert storage.put_if_absent("t/stage/short", b"short")
    assert storage.put_if_absent("t/stage/long", ONE + b"1")
    assert len(spares(tmp_path)) == before
    for number in range(before + 3):
        assert storage.put_if_absent(f"t/stage/{number}", ONE)
    assert {len(file.read_bytes()) for file in (tmp_path / "t/stage").glob("[0-9]*")} == {PREALLOCATED_BYTES}
    assert spares(tmp_path) == []
    assert not storage.is_preallocated("t/stage")
    storage.preallocate("t/stage")
    assert len(spares(tmp_path)) == before


def test_a_forked_process_leaves_the_spares_of_the_other_alone(storage: LocalStorage, tmp_path: Path) -> None:
    before = spares(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            storage.put_if_absent("t/stage/1", ONE)
            storage.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "t/stage/1").read_bytes() == ONE
    assert spares(tmp_path) == before


def test_spares_that_were_taken_away_are_not_missed(storage: LocalStorage, tmp_path: Path) -> None:
    for file in spares(tmp_path):
        file.unlink()
    assert storage.put_if_absent("t/stage/1", ONE)
    assert not storage.is_preallocated("t/stage")


def test_one_that_is_taken_away_before_it_has_its_name_leaves_nothing(
    storage: LocalStorage, tmp_path: Path, watched: Callable[[str, Callable[[], object]], None]
) -> None:
    """As an erase does: whoever wrote it begins again, knowing what was erased."""
    watched("stage.written", lambda: [file.unlink() for file in spares(tmp_path)])
    with pytest.raises(FileNotFoundError):
        storage.put_if_absent("t/stage/1", ONE)
    assert list((tmp_path / "t/stage").iterdir()) == []
    assert storage.put_if_absent("t/stage/1", OTHER)


def test_a_dropped_table_does_not_come_back(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.preallocate("gone/stage")
    assert not (tmp_path / "gone").exists()
    with pytest.raises(FileNotFoundError):
        storage.put_if_absent("gone/stage/1", ONE)


def test_a_disk_that_fails_is_told_and_leaves_nothing(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local.os, "fdatasync", broken)
    before = len(spares(tmp_path))
    with pytest.raises(Unavailable, match=r"cannot write t/stage/1: Input/output error; the disk failed"):
        storage.put_if_absent("t/stage/1", ONE)
    assert list((tmp_path / "t/stage").iterdir()) == []
    assert len(spares(tmp_path)) == before - 1


def test_a_full_disk_makes_no_spares_and_no_noise(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    made = PreallocatedFiles(str(tmp_path / "t/spare"))
    before = spares(tmp_path)
    monkeypatch.setattr(local.os, "write", full)
    made.refill()
    assert made.write_synced(ONE) is None
    assert spares(tmp_path) == before


def test_closing_leaves_none(storage: LocalStorage, tmp_path: Path) -> None:
    assert spares(tmp_path)
    storage.close()
    assert spares(tmp_path) == []


def test_who_writes_often_has_spares_and_who_writes_now_and_then_none(tmp_path: Path) -> None:
    log = crannog.builds.open_log(f"delta://{tmp_path}/warehouse")
    event = crannog.builds.BuildEvent.new
    with log:
        for _ in range(5):
            log.append_event(event("b", crannog.builds.BuildCancelEvent("")))
        assert list(tmp_path.glob("warehouse/**/spare/*")) == []
        for _ in range(40):
            log.append_event(event("b", crannog.builds.BuildCancelEvent("")))
        log.warehouse._background.submit(lambda: None).result()
        assert list(tmp_path.glob("warehouse/**/spare/*"))
    assert list(tmp_path.glob("warehouse/**/spare/*")) == []
    staged = sorted(tmp_path.glob("warehouse/**/stage/*.parquet"))
    assert len(staged) == 45
    assert {file.stat().st_size for file in staged} == {PREALLOCATED_BYTES}
    assert [pq.read_table(file)["index"].to_pylist() for file in staged] == [[number] for number in range(1, 46)]
