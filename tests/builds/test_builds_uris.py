"""Addresses of logs and what is wrong with them; printing, copying to several, and never breaking a build."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from build_samples import one_of_each, partition, request
from crannog.builds import BuildRequestStatus, PartitionStatus, check, open_log
from crannog.builds.open_log import without_password
from crannog.builds.read_model import tables
from crannog.builds.read_model.tables import Connection
from crannog.builds.stores.forwarding_log import BestEffortLog
from crannog.builds.stores.sqlite_log import SqliteDatabase
from crannog.errors import CallerError, Corrupted, CrannogError, Overloaded, Refused, Unavailable
from postgres_server import Server, postgres  # noqa: F401

B, P = BuildRequestStatus, PartitionStatus


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("", "is not the URI of a build log"),
        ("/a/path", "is not the URI of a build log"),
        ("mysql://host/db", "mysql: is not a kind of build log"),
        ("s3://bucket/x", r"did you mean delta\+s3"),
        ("sqlite:log.db", "write sqlite:///relative/file"),
        ("sqlite:///", "write sqlite:///relative/file"),
        ("sqlite:////no/such/folder/log.db", "there is no folder /no/such/folder"),
        ("sqlite:////tmp", "is a folder; a SQLite log is a file"),
        ("delta:relative", "is not absolute"),
        ("delta://relative/path", "is not absolute"),
        ("delta:///", "names no folder"),
        ("delta+s3:///path", "names no bucket"),
        ("stdout:file", "write stdout: without anything after it"),
        ("tee:stdout:", "two URIs or more"),
        ("tee:sqlite::memory:,nonsense", "is not the URI of a build log"),
        ("postgresql://host:notaport/x", "is no address of a PostgreSQL database|failed"),
        ("http://127.0.0.1:1", "no server responds at http://127.0.0.1:1"),
    ],
)
def test_bad_addresses(uri: str, says: str) -> None:
    with pytest.raises(CrannogError, match=says):
        open_log(uri)


def test_options_that_a_kind_does_not_have() -> None:
    with pytest.raises(CallerError, match="no option colour"):
        open_log("sqlite::memory:", colour="red")
    with pytest.raises(CallerError, match="the URI of a build log is text"):
        open_log(3)  # type: ignore[arg-type]


def test_relative_and_absolute_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_log("sqlite:///log%20one.db") as log:
        log.append_event(request("b", B.RECEIVED))
    assert (tmp_path / "log one.db").is_file()
    with open_log(f"sqlite:///{tmp_path}/log one.db") as log:
        assert log.head() == 1


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 1000)
    with pytest.raises(Corrupted, match="is not a build log or is damaged"):
        open_log(f"sqlite:///{tmp_path}/text")
    for statement in ("CREATE TABLE shopping (what TEXT)", "CREATE TABLE meta (what TEXT)"):
        with sqlite3.connect(tmp_path / "other.db") as raw:
            raw.execute(statement)
        raw.close()
        with pytest.raises(Refused, match="a SQLite database but not a build log"):
            open_log(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(Unavailable, match="cannot create the folder /proc/log"):
        open_log("delta:///proc/log")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file(tmp_path: Path) -> None:
    open_log(f"sqlite:///{tmp_path}/log.db").close()
    (tmp_path / "log.db").chmod(0o444)
    tmp_path.chmod(0o555)
    with pytest.raises(Refused, match="read-only"):
        open_log(f"sqlite:///{tmp_path}/log.db")


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    assert without_password("postgresql://me:secret@host/db") == "postgresql://me@host/db"
    with pytest.raises(Unavailable) as failure:
        open_log(f"postgresql://me:secret@/db?host={tmp_path}")
    assert "secret" not in failure.value.message


def test_a_server_that_goes_away_is_unavailable_and_comes_back(postgres: Server) -> None:  # noqa: F811
    uri = postgres.new_database("goes_away")
    with open_log(uri) as log:
        log.append_event(request("b", B.RECEIVED))
        import psycopg

        with psycopg.connect(postgres.uri("postgres"), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'goes_away'")
        with pytest.raises(Unavailable):
            log.head()
        assert log.head() == 1
    with pytest.raises(CallerError, match="does not exist"):
        open_log(postgres.uri("nowhere"))


# -- schema versions ---------------------------------------------------------------------------------------------


def test_a_new_log_is_stamped_and_a_newer_one_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    with open_log(f"sqlite:///{file}") as log:
        assert log.stats().schema_version == tables.SCHEMA_VERSION
        assert (log.migration.before, log.migration.after) == (None, 1)  # type: ignore[attr-defined]
    with sqlite3.connect(file) as raw:
        assert raw.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchall() == [("1",)]
        raw.execute("UPDATE meta SET value = '9' WHERE name = 'schema_version'")
    raw.close()
    with pytest.raises(Refused, match="has schema version 9, this Crannog knows 1; upgrade"):
        open_log(f"sqlite:///{file}")


def test_an_older_log_is_brought_up_step_by_step(tmp_path: Path) -> None:
    """Code of version 3 opens a log of version 1: each step once, in order, and again after a crash between them."""
    file = tmp_path / "log.db"
    with open_log(f"sqlite:///{file}") as log:
        log.append_events(one_of_each())
    ran: list[int] = []

    def first(model: Connection) -> None:
        ran.append(1)
        model.run("ALTER TABLE builds ADD COLUMN colour TEXT")

    def crash(model: Connection) -> None:
        ran.append(2)
        raise KeyboardInterrupt

    def second(model: Connection) -> None:
        ran.append(2)
        model.run("UPDATE builds SET colour = 'green'")

    database = SqliteDatabase(file, durable=True)
    with pytest.raises(KeyboardInterrupt), database.writing() as model:
        tables.prepare(model, "here", version=3, steps={1: first, 2: crash})
    with database.writing() as model:
        assert tables.stored_version(model) == 1
        done = tables.prepare(model, "here", version=3, steps={1: first, 2: second})
        assert (done.before, done.after, done.changed) == (1, 3, True)
        assert model.query("SELECT build_request_id, colour FROM builds") == [("b1", "green")]
    with database.writing() as model:
        assert not tables.prepare(model, "here", version=3, steps={}).changed
        with pytest.raises(Refused, match="no step from 3 to 4"):
            tables.prepare(model, "here", version=4, steps={})
    database.close()
    assert ran == [1, 2, 1, 2]


# -- SQLite under pressure ---------------------------------------------------------------------------------------


def test_acknowledged_means_synced(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        with log.reading() as model:  # type: ignore[attr-defined]
            assert model.query("PRAGMA journal_mode") == [("wal",)]
        with log.database.writing() as model:  # type: ignore[attr-defined]
            assert model.query("PRAGMA synchronous") == [(2,)]


def test_a_writer_waits_while_another_has_the_lock(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        other = sqlite3.connect(tmp_path / "log.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.4, lambda: other.execute("ROLLBACK"))
        release.start()
        began = time.monotonic()
        assert log.append_event(request("b", B.RECEIVED)) == 1
        assert time.monotonic() - began > 0.3
        release.join()
        other.close()


def test_a_failure_in_the_middle_of_a_batch_keeps_nothing(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.append_event(request("b", B.RECEIVED))
        with log.database.writing() as model:  # type: ignore[attr-defined]
            model.run("CREATE TRIGGER full BEFORE INSERT ON partitions BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with pytest.raises(Unavailable, match="disk full"):
            log.append_events([request("b", B.PLANNING), partition("b", "p", P.BUILDING), request("b", B.FAILED)])
        assert log.head() == 1
        assert log.get_event("b:PLANNING") is None
        assert check(log).ok


# -- printing, several logs, best effort -------------------------------------------------------------------------


def test_stdout_prints_and_refuses_to_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with open_log("stdout:") as log:
        assert log.append_events(one_of_each()[:2]) == [1, 2]
        assert log.append_event(one_of_each()[2]) == log.head() == 3
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["index"] for line in lines] == [1, 2, 3]
        assert [line["event_id"] for line in lines] == ["b1-0", "b1-1", "b1-2"]
        for read in (
            log.list_events,
            log.stats,
            log.list_jobs,
            lambda: log.get_event("x"),
            lambda: log.remove_events([1]),
        ):
            with pytest.raises(Refused, match="stores nothing"):
                read()


def test_a_tee_writes_to_all_and_says_which_failed(tmp_path: Path) -> None:
    uri = f"tee:sqlite:///{tmp_path}/a.db,sqlite:///{tmp_path}/b%2C2.db"
    with open_log(uri) as log:
        assert log.append_events(one_of_each()) == list(range(1, 9))
        with open_log(f"sqlite:///{tmp_path}/b,2.db") as copy:
            assert list(copy.all_events()) == one_of_each()
        log.logs[1].close()  # type: ignore[attr-defined]
        with pytest.raises(Unavailable, match="stored the batch, but not every copy did"):
            log.append_event(request("b", B.RECEIVED))
        assert log.head() == 9


def test_best_effort_never_raises(tmp_path: Path) -> None:
    with open_log("sqlite:////no/such/folder/log.db", best_effort=True) as log:
        assert isinstance(log, BestEffortLog)
        assert log.append_event(request("b", B.RECEIVED)) == 0
        assert log.append_events(["nonsense", request("b", B.FAILED)]) == [0, 0]  # type: ignore[list-item]
        assert log.append_events(3) == [0]  # type: ignore[arg-type]
        assert log.flush()
        assert (log.kept, log.dropped) == (0, 4)
        assert "no folder" in str(log.last_error)


def test_best_effort_keeps_what_it_can(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/log.db"
    with open_log(uri) as plain:
        plain.append_event(request("taken", B.RECEIVED))
    with open_log(uri, best_effort=True) as log:
        wrong = request("taken", B.RECEIVED, "other content")
        log.append_events([request("a", B.RECEIVED), wrong, request("c", B.RECEIVED)])
        assert log.head() == 3  # a read waits for what was taken
        assert isinstance(log, BestEffortLog)
        assert (log.kept, log.dropped) == (2, 1)
    log.append_event(request("late", B.RECEIVED))
    assert log.dropped == 2


def test_best_effort_does_not_wait_for_a_store_that_hangs() -> None:
    hang = threading.Event()

    def opener() -> Any:
        hang.wait(20)
        raise Overloaded("still busy")

    log = BestEffortLog("test:", opener, queue_events=5)
    began = time.monotonic()
    for number in range(20):
        log.append_event(request(f"b{number}", B.RECEIVED))
    assert time.monotonic() - began < 1
    assert log.dropped >= 9
    hang.set()
    log.close(timeout_s=3)
