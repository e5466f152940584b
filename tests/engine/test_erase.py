"""Erase: afterwards the keys stand nowhere, the receipt tells what was found where, and nothing else is lost without need."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from crannog.api.reports import ErasureReceipt
from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.maintenance.erase import erase
from crannog.errors import CallerError, Cancelled, SnapshotGone, VerificationFailed
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.storage import failpoints
from lakes import (
    INSTANT,
    actions,
    canonical,
    engine,
    every_file,
    live_files,
    opened,
    read_delta_rs,
    readable_versions,
    root,
)

NAME = "crm.eu.people"
LIVE, OLD, STAGE, LOG, CHECKPOINTS, MEMORY, RESULTS, TRASH, SCRATCH, AUDIT_TEXTS = PLACES = (
    "live files",
    "files of old versions",
    "stage",
    "log statistics",
    "checkpoints",
    "hot cache",
    "query results",
    "unfinished deletions",
    "scratch folders",
    "audit texts",
)
PEOPLE = pa.schema([("email", pa.string()), ("n", pa.int64())])


@pytest.fixture
def lake(settings: Settings, spark: SparkRuntime) -> Iterator[Lake]:
    with opened(settings, lease_wait_s=0.3) as lake:
        yield lake


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Do something once when a phase is reached."""

    def watch(phase: str, act: Callable[[], object]) -> None:
        def hook(reached: str) -> None:
            if reached == phase:
                monkeypatch.setattr(failpoints, "hook", None)
                act()

        monkeypatch.setattr(failpoints, "hook", hook)

    return watch


def person(name: str, n: int = 0) -> dict[str, Any]:
    return {"email": f"{name}@example.org", "n": n}


def places(receipt: ErasureReceipt) -> dict[str, tuple[int, int]]:
    """What was found before and after, by place."""
    return {place.place: (place.before, place.after) for place in receipt.places}


def showing(folder: Path, text: str) -> list[str]:
    """The files below a folder that show a text: raw, or inside compressed Parquet pages."""
    needle = text.encode()
    found = []
    for name, data in every_file(folder).items():
        if name.endswith(".parquet"):
            data += repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode()
        if needle in data or text in name:
            found.append(name)
    return found


def actions_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [action for _, action in actions(folder, kind)]


def rows_with(folder: Path, match: Callable[[dict[str, Any]], bool], columns: Iterable[str]) -> list[str]:
    """The Parquet files below a folder, read one by one, that have such a row."""
    wanted = set(columns)
    found = []
    for name, data in every_file(folder).items():
        if name.endswith(".parquet"):
            table = pq.read_table(io.BytesIO(data))
            if wanted <= set(table.column_names) and any(map(match, table.to_pylist())):
                found.append(name)
    return found


# -- the receipt and the proof ---------------------------------------------------------------------------------


def test_the_receipt_tells_what_was_found_where_and_the_key_is_in_no_file(lake: Lake, settings: Settings) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    # The least and the greatest of its file, so that the log's statistics show both.
    table.append([person("aaa"), person("mid", 1), person("zzz", 2)])
    table.fold()
    table.append([person("other", 3)])
    table.fold()
    table.upsert([person("aaa", 4)])
    table.append([person("staged", 5)])
    folder = root(lake, NAME)
    assert showing(folder, "aaa@example.org")
    assert showing(folder, "zzz@example.org")

    steps: list[tuple[str, float]] = []
    receipt = table.erase(
        ["aaa@example.org", "zzz@example.org", "aaa@example.org", "nobody@example.org"],
        actor="dpo",
        reason="art. 17",
        progress=lambda step, share: steps.append((step, share)),
    )

    for key in ("aaa@example.org", "zzz@example.org", "nobody@example.org"):
        assert showing(folder, key) == []
    assert canonical(table.to_arrow()) == canonical([person("mid", 1), person("other", 3), person("staged", 5)])
    assert canonical(table.to_spark().toArrow()) == canonical(table.to_arrow())
    assert canonical(read_delta_rs(folder)) == canonical(table.to_arrow())

    assert (receipt.table, receipt.keys, receipt.rows_erased) == (NAME, 3, 2)
    assert (receipt.actor, receipt.reason, receipt.readers_cut_off) == ("dpo", "art. 17", 0)
    assert tuple(place.place for place in receipt.places) == PLACES
    found = places(receipt)
    assert found[LIVE] == (1, 0)
    assert found[OLD] == (0, 0)
    assert found[STAGE] == (2, 0), "the first append and the upsert"
    assert found[LOG] == (1, 0)
    assert found[MEMORY] == (1, 0)
    assert {place.place: place.looked_at for place in receipt.places}[LOG] == len(actions_of(folder, "commitInfo"))
    assert receipt.files_deleted >= 4
    assert receipt.as_dict()["keys"] == 3
    names = [step for step, _ in steps]
    assert names[0] == "search for the keys"
    assert names[-3:] == ["delete old files", "clean the log", "verify"]
    assert all(0 <= share <= 1 for _, share in steps)

    assert table.tombstones() == []
    with opened(settings) as other:
        assert other.table(NAME).count() == 3
        assert other.table(NAME).count(raw=True) == 3


def test_the_audit_has_who_why_when_and_a_hash_and_never_the_key(lake: Lake) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    before = dt.datetime.now(dt.UTC)
    receipt = table.erase(["ann@example.org"], actor="dpo", reason="asked")
    [entry] = table.audit()
    assert (entry["actor"], entry["reason"], entry["outcome"]) == ("dpo", "asked", "hidden")
    assert before <= entry["deleted_at"] <= dt.datetime.now(dt.UTC)
    assert (entry["key_hash"],) == receipt.key_hashes
    assert re.fullmatch("[0-9a-f]{64}", entry["key_hash"])
    everything = every_file(Path(lake.operations.warehouse.location))
    assert not [name for name, data in everything.items() if b"ann@example.org" in data]
    # Keyed: the same key in another table, or without the secret, has another hash.
    other = lake.create_table("crm.us.people", PEOPLE, key="email")
    other.append([person("ann")])
    assert other.erase(["ann@example.org"]).key_hashes != receipt.key_hashes


def test_erasing_what_is_not_there_or_cannot_be(lake: Lake) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann")])
    table.fold()
    receipt = table.erase(["nobody@example.org"])
    assert (receipt.keys, receipt.rows_erased, receipt.versions_lost) == (1, 0, ())
    assert all(before == 0 for before, _ in places(receipt).values())
    assert table.count() == 1
    assert showing(root(lake, NAME), "nobody@example.org") == []
    assert table.audit()[-1]["outcome"] == "not there"
    with pytest.raises(CallerError, match="no keys"):
        table.erase([])
    with pytest.raises(CallerError, match=rf"cannot erase from {NAME}: row 0") as raised:
        table.erase([7])
    assert "erase from to" not in raised.value.message
    plain = lake.create_table("crm.eu.log", PEOPLE)
    with pytest.raises(CallerError, match="it has no key"):
        plain.erase(["x"])


def test_it_reaches_rows_that_were_only_staged(lake: Lake) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    receipt = table.erase(["ann@example.org"])
    assert places(receipt)[STAGE] == (1, 0)
    assert places(receipt)[MEMORY] == (1, 0)
    assert receipt.rows_erased == 1
    assert showing(root(lake, NAME), "ann@example.org") == []
    assert canonical(table.to_arrow()) == canonical([person("bob")])


def test_a_deleted_row_is_erased_from_old_files_too(lake: Lake) -> None:
    """Deleted and folded long ago: only files of old versions, the log and checkpoints still have it."""
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    table.fold()
    table.delete(["ann@example.org"])
    table.fold()
    assert showing(root(lake, NAME), "ann@example.org")
    receipt = table.erase(["ann@example.org"])
    found = places(receipt)
    assert found[LIVE] == (0, 0)
    assert found[OLD] == (1, 0)
    assert found[LOG] == (1, 0)
    assert receipt.rows_erased == 0
    assert showing(root(lake, NAME), "ann@example.org") == []


# -- keys of every kind ----------------------------------------------------------------------------------------


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["a", "ß𝕏 – no ascii", "", "b'\"\\"]),
    "int8": (pa.int8(), [-128, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), 0, 2**53 + 1, 2**63 - 1]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "timestamp": (INSTANT, [dt.datetime(1900, 1, 1, 0, 0, 0, number, dt.UTC) for number in (1, 500, 1_500, 999_999)]),
    "decimal": (
        pa.decimal128(38, 10),
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal(0), Decimal("0.5"), Decimal("9e27")],
    ),
    "binary": (pa.binary(), [b"", b"\x00\xff", b"abc", bytes(range(200))]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_kind(lake: Lake, kind: str) -> None:
    type_, values = KINDS[kind]
    table = lake.create_table("crm.kinds.all", pa.schema([("k", type_), ("n", pa.int64())]), key="k")
    rows = [{"k": value, "n": number} for number, value in enumerate(values)]
    table.append(rows)
    table.fold()
    folder = root(lake, "crm.kinds.all")
    # The file's least and its greatest, and one that no statistic shows.
    doomed = [values[0], values[1], values[-1]]
    receipt = table.erase(doomed)
    assert receipt.rows_erased == 3
    assert receipt.files_deleted >= 2
    assert rows_with(folder, lambda row: row["k"] in doomed, ["k"]) == []
    assert canonical(table.to_arrow()) == canonical([row for row in rows if row["k"] not in doomed])
    if type_ != pa.binary():
        assert places(receipt)[LOG] == (1, 0)
    shown = {
        json.dumps(stats[bound]["k"])
        for add in actions_of(folder, "add")
        for stats in [json.loads(add["stats"])]
        for bound in ("minValues", "maxValues")
        if "k" in stats.get(bound, {})
    }
    assert len(shown) <= 1, "one row is left, and it alone may show"


def test_a_bool_as_key(lake: Lake) -> None:
    table = lake.create_table("crm.kinds.bool", pa.schema([("k", pa.bool_()), ("n", pa.int64())]), key="k")
    table.append([{"k": True, "n": 1}, {"k": False, "n": 2}])
    table.fold()
    assert table.erase([True]).rows_erased == 1
    assert table.to_arrow()["n"].to_pylist() == [2]
    assert rows_with(root(lake, "crm.kinds.bool"), lambda row: row["k"] is True, ["k", "n"]) == []


def test_keys_of_several_columns(lake: Lake) -> None:
    schema = pa.schema([("tenant", pa.string()), ("email", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    table = lake.create_table("crm.kinds.several", schema, key=["tenant", "email", "day"])
    day, later = dt.date(2024, 1, 1), dt.date(2024, 1, 2)
    rows = [
        {"tenant": tenant, "email": email, "day": each, "n": number}
        for number, (tenant, email, each) in enumerate(
            [
                ("a", "zz-secret@x.org", day),
                ("a", "other@x.org", day),
                ("b", "other@x.org", later),
                ("b", "third@x.org", day),
            ]
        )
    ]
    table.append(rows)
    for number in range(5):  # a checkpoint shows the secret as well
        table.fold()
        table.append([{"tenant": "c", "email": "filler@x.org", "day": day, "n": 100 + number}])
    table.fold()
    folder = root(lake, "crm.kinds.several")
    wait_for_checkpoints(lake, folder, at_least=1)
    receipt = table.erase([{"tenant": "a", "email": "zz-secret@x.org", "day": day}])
    assert receipt.rows_erased == 1
    # Its e-mail stood in no other row: no file may show it, the statistics of old files included.
    assert showing(folder, "zz-secret@x.org") == []
    assert canonical(row for row in table.to_arrow().to_pylist() if row["n"] < 100) == canonical(rows[1:])


def wait_for_checkpoints(lake: Lake, folder: Path, *, at_least: int) -> None:
    done = lake.operations.warehouse.in_background(lambda: None)  # behind every checkpoint that was asked for
    assert done is not None
    done.result(60)
    assert len(list((folder / "_delta_log").glob("*.checkpoint.parquet"))) >= at_least


def test_other_keys_with_the_same_beginning_do_not_stand_in_the_way(lake: Lake) -> None:
    """Statistics show 32 characters: a neighbour's look like the erased key's and are no proof that it is there."""
    table = lake.create_table(NAME, PEOPLE, key="email")
    common = "x" * 40
    table.append([person(common + letter) for letter in "abc"])
    table.fold()
    receipt = table.erase([person(common + "a")["email"]])
    assert receipt.rows_erased == 1
    assert table.count() == 2
    assert showing(root(lake, NAME), common + "a@example.org") == []


@pytest.mark.parametrize(
    ("kind", "doomed", "neighbour"),
    [
        (INSTANT, dt.datetime(2024, 1, 1, 0, 0, 0, 123_400, dt.UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 123_401, dt.UTC)),
        (pa.decimal128(38, 2), Decimal("12345678901234567890.11"), Decimal("12345678901234567890.12")),
    ],
    ids=["within a millisecond", "beyond a float's digits"],
)
def test_a_neighbour_that_statistics_cannot_tell_apart(
    lake: Lake, kind: pa.DataType, doomed: Any, neighbour: Any
) -> None:
    table = lake.create_table("crm.kinds.near", pa.schema([("k", kind), ("n", pa.int64())]), key="k")
    table.append([{"k": doomed, "n": 1}, {"k": neighbour, "n": 2}])
    table.fold()
    assert table.erase([doomed]).rows_erased == 1
    assert table.to_arrow()["n"].to_pylist() == [2]


# -- checkpoints, packs, history -------------------------------------------------------------------------------


def test_checkpoints_that_show_a_key_go(lake: Lake, settings: Settings) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("aaa"), person("bbb")])
    for number in range(7):
        table.fold()
        table.append([person(f"filler{number}", number)])
    table.fold()
    folder = root(lake, NAME)
    wait_for_checkpoints(lake, folder, at_least=1)
    old = [name for name in showing(folder / "_delta_log", "aaa@example.org") if "checkpoint" in name]
    assert old, "the least key of a file is in its checkpoint"
    receipt = table.erase(["aaa@example.org"])
    assert places(receipt)[CHECKPOINTS] == (len(old), 0)
    assert showing(folder, "aaa@example.org") == []
    # What the log still says of the head can be read from scratch, by others too.
    assert canonical(read_delta_rs(folder)) == canonical(table.to_arrow())
    assert (
        json.loads((folder / "_delta_log" / "_last_checkpoint").read_text())["version"]
        == DeltaTable(str(folder)).version()
    )
    with opened(settings) as other:
        assert canonical(other.table(NAME).to_arrow()) == canonical(table.to_arrow())
        other.table(NAME).append([person("after")])
        other.table(NAME).fold()


def test_what_statistics_tell_of_the_other_columns_goes_too(lake: Lake) -> None:
    """The key is in no statistic, but the row's birthday is the least of its file: that is about the person as well."""
    schema = pa.schema([("email", pa.string()), ("born", pa.date32())])
    table = lake.create_table(NAME, schema, key="email")
    rows = [{"email": f"{name}@example.org", "born": dt.date(1990, 1, 1)} for name in ("aaa", "secret", "zzz")]
    rows[1]["born"] = dt.date(1911, 11, 11)
    table.append(rows)
    for number in range(5):
        table.fold()
        table.append([{"email": f"filler{number}@example.org", "born": dt.date(1990, 1, 1)}])
    table.fold()
    folder = root(lake, NAME)
    wait_for_checkpoints(lake, folder, at_least=1)
    assert any("checkpoint" in name for name in showing(folder, "1911-11-11"))
    table.erase(["secret@example.org"])
    assert showing(folder, "1911-11-11") == []
    assert rows_with(folder, lambda row: row["born"] == dt.date(1911, 11, 11), ["born"]) == []


def test_a_pack_that_holds_the_key_and_later_changes(lake: Lake) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("first", 1)])
    table.fold()
    for number in range(2, 130):
        table.append([person("secret" if number == 70 else f"p{number}", number)])
    done = lake.operations.warehouse.in_background(lambda: None)
    assert done is not None
    done.result(60)
    stage = Path(lake.operations.warehouse.storage.uri(engine(table).log.stage_folder))
    packs = sorted(path.name for path in stage.glob("pack-*"))
    assert packs == ["pack-64-0000000001.parquet"]
    receipt = table.erase(["secret@example.org"])
    assert places(receipt)[STAGE] == (1, 0)
    assert showing(root(lake, NAME), "secret@example.org") == []
    assert table.count() == 128
    assert not list(stage.glob("pack-*")), "it went whole, its changes are in the base"


@pytest.mark.parametrize("shared", [False, True], ids=["files of its own", "one shared file"])
def test_other_rows_keep_their_history_where_no_file_is_shared(lake: Lake, shared: bool) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann", 1), *([person("secret")] if shared else [])])
    table.fold()  # 1
    table.append([person("bob", 2)])
    table.fold()  # 2
    if not shared:
        table.append([person("secret")])
        table.fold()  # 3
    table.upsert([person("bob", 3)])
    table.fold()
    folder = root(lake, NAME)
    versions = DeltaTable(str(folder)).version()
    assert readable_versions(folder) == list(range(versions + 1))
    history = {version: canonical(read_delta_rs(folder, version)) for version in range(versions + 1)}

    receipt = table.erase(["secret@example.org"])
    readable = readable_versions(folder)
    lost = [version for version in range(versions + 1) if version not in readable]
    assert list(receipt.versions_lost) == lost
    assert lost == ([1, 2, 3] if shared else [3, 4])
    for version in readable:
        if version <= versions:
            assert canonical(read_delta_rs(folder, version)) == history[version]
    assert [entry["version"] for entry in table.history()] == list(range(versions + 1, -1, -1))


def test_versions_lost_are_right_when_the_log_starts_with_a_checkpoint(lake: Lake) -> None:
    """Old entries go after a day; what they added is known from the checkpoint only."""
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("aaa"), person("bbb")])
    for number in range(7):
        table.fold()
        table.append([person(f"filler{number}", number)])
    folder = root(lake, NAME)
    wait_for_checkpoints(lake, folder, at_least=1)
    for file in (folder / "_delta_log").iterdir():
        os.utime(file, (0, 0))
    DeltaTable(str(folder)).cleanup_metadata()
    table.fold()
    log = sorted(int(path.stem) for path in (folder / "_delta_log").glob("*.json") if path.stem.isdigit())
    assert log[0] > 0, "the first entries are gone"
    before = readable_versions(folder)
    receipt = table.erase(["aaa@example.org"])
    after = readable_versions(folder)
    assert list(receipt.versions_lost) == [version for version in before if version not in after]
    assert showing(folder, "aaa@example.org") == []


# -- others at work --------------------------------------------------------------------------------------------


def test_a_key_that_is_written_again_meanwhile_is_not_lost(
    lake: Lake, settings: Settings, watched: Callable[[str, Callable[[], object]], None]
) -> None:
    """Erase covers what was before it; a later row of the key was acknowledged and stays, or the failure is loud."""
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann", 1), person("bob", 2)])
    table.fold()
    with opened(settings) as other:
        watched("rewrite.verified", lambda: other.table(NAME).append([person("ann", 99)]))
        with contextlib.suppress(VerificationFailed):
            assert table.erase(["ann@example.org"]).rows_erased == 1
    assert canonical(table.to_arrow()) == canonical([person("ann", 99), person("bob", 2)])
    assert table.erase(["ann@example.org"]).rows_erased == 1
    assert showing(root(lake, NAME), "ann@example.org") == []
    assert canonical(table.to_arrow()) == canonical([person("bob", 2)])


def test_rows_erased_does_not_count_what_others_write(
    lake: Lake, settings: Settings, watched: Callable[[str, Callable[[], object]], None]
) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    table.fold()
    with opened(settings) as other:
        watched("stage.written", lambda: other.table(NAME).append([person(f"new{number}") for number in range(5)]))
        receipt = table.erase(["ann@example.org"])
    assert table.count() == 6
    assert receipt.rows_erased == 1


def test_it_waits_for_readers_then_wins(lake: Lake) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    table.fold()
    open_table = engine(table)
    snapshot = open_table.snapshot()
    with open_table.reading(snapshot):
        receipt = table.erase(["ann@example.org"])
        assert receipt.readers_cut_off == 1
        assert receipt.seconds >= 0.3
        with pytest.raises(SnapshotGone):
            open_table.to_arrow(snapshot=snapshot)
    assert table.count() == 1
    assert showing(root(lake, NAME), "ann@example.org") == []


def test_a_failure_is_loud(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    table.fold()
    storage = lake.operations.warehouse.storage
    delete = storage.delete
    skipped: list[str] = []

    def forgetful(paths: Iterable[str]) -> None:
        listed = list(paths)
        kept = [path for path in listed if "/data/" in path]
        skipped.extend(kept)
        delete(path for path in listed if path not in kept)

    monkeypatch.setattr(storage, "delete", forgetful)
    with pytest.raises(VerificationFailed, match="still readable in files of old versions") as raised:
        table.erase(["ann@example.org"])
    assert skipped
    assert skipped[0] in raised.value.message
    assert "ann@example.org" not in raised.value.message
    monkeypatch.undo()
    # Once more, and it is done.
    table.erase(["ann@example.org"])
    assert showing(root(lake, NAME), "ann@example.org") == []


def test_a_log_that_keeps_its_statistics_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("aaa"), person("bbb")])
    table.fold()
    monkeypatch.setattr(
        lake.operations.warehouse.storage, "replace", _only_leases(lake.operations.warehouse.storage.replace)
    )
    with pytest.raises(VerificationFailed, match="still readable in log statistics"):
        table.erase(["aaa@example.org"])


def _only_leases(replace: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
    def replaced(path: str, data: bytes) -> None:
        if "/leases/" in path:
            replace(path, data)

    return replaced


def test_cancelled_before_anything_is_removed(lake: Lake) -> None:
    from crannog.api.reports import Cancellation

    table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person("ann"), person("bob")])
    table.fold()
    files = set(live_files(root(lake, NAME)))
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        erase(engine(table), ["ann@example.org"], cancellation=cancellation)
    assert set(live_files(root(lake, NAME))) == files
    # The delete was acknowledged before: it hides the row, and the next fold takes it out.
    assert canonical(table.to_arrow()) == canonical([person("bob")])
    assert [entry["key"] for entry in table.tombstones()] == [{"email": "ann@example.org"}]


def test_other_tables_are_left_alone(lake: Lake) -> None:
    table = lake.create_table(NAME, PEOPLE, key="email")
    other = lake.create_table("crm.us.people", PEOPLE, key="email")
    for each in (table, other):
        each.append([person("ann"), person("bob")])
        each.fold()
    before = every_file(root(lake, other.name))
    table.erase(["ann@example.org"])
    assert every_file(root(lake, other.name)) == before


def test_erasing_many_keys_at_once(lake: Lake) -> None:
    table: Table = lake.create_table(NAME, PEOPLE, key="email")
    table.append([person(f"p{number:04}", number) for number in range(2_000)])
    table.fold()
    doomed = [person(f"p{number:04}")["email"] for number in range(0, 2_000, 2)]
    receipt = table.erase(pa.array(doomed))
    assert (receipt.keys, receipt.rows_erased, len(set(receipt.key_hashes))) == (1_000, 1_000, 1_000)
    assert table.count() == 1_000
    assert len(table.audit()) == 1_000
    data = every_file(root(lake, NAME))
    assert not [
        name for name, content in data.items() if b"p0000@example.org" in content or b"p1998@example.org" in content
    ]


# -- tables without a key ----------------------------------------------------------------------------------------------

VISITS = pa.schema([("visitor", pa.string()), ("page", pa.string()), ("n", pa.int64())])


def visits(start: int, count: int, visitor: str = "") -> list[dict[str, Any]]:
    return [{"visitor": visitor or f"v{n % 50}@x.org", "page": f"/{n}", "n": n} for n in range(start, start + count)]


def test_rows_of_a_table_without_a_key_are_erased_by_their_values(lake: Lake) -> None:
    table = lake.create_table(NAME, VISITS)
    table.append(visits(0, 200))
    table.fold()
    table.append([*visits(200, 50), *visits(900, 3, "doomed@x.org")])
    table.fold()
    table.append(visits(1000, 2, "doomed@x.org"))
    receipt = erase(engine(table), ["doomed@x.org", "never@x.org"], by=["visitor"], actor="dpo", reason="asked")
    assert (receipt.keys, receipt.rows_erased, receipt.actor, receipt.reason) == (2, 5, "dpo", "asked")
    found = {place.place: (place.before > 0, place.after) for place in receipt.places}
    assert found[LIVE] == (True, 0)
    assert found[STAGE] == (True, 0)
    assert all(after == 0 for _, after in found.values())
    assert sorted(row["n"] for row in table.to_arrow().to_pylist()) == list(range(250))
    assert sorted(row["n"] for row in read_delta_rs(root(lake, NAME)).to_pylist()) == list(range(250))
    assert [path for path, data in every_file(root(lake, NAME)).items() if b"doomed@x.org" in data] == []
    assert {(entry["actor"], entry["reason"]) for entry in table.audit()} == {("dpo", "asked")}
    assert {entry["key_hash"] for entry in table.audit()} == set(receipt.key_hashes)


def test_what_is_written_meanwhile_to_a_table_without_a_key_stays(
    lake: Lake, watched: Callable[[str, Callable[[], object]], None]
) -> None:
    table = lake.create_table(NAME, VISITS)
    table.append(visits(0, 10, "doomed@x.org"))
    table.append(visits(10, 10))
    watched("erase.files_deleted", lambda: table.append(visits(500, 1)))
    receipt = erase(engine(table), ["doomed@x.org"], by=["visitor"])
    assert receipt.rows_erased == 10
    assert sorted(row["n"] for row in table.to_arrow().to_pylist()) == [*range(10, 20), 500]


@pytest.mark.parametrize(
    ("key", "by", "words"),
    [
        (None, [], "has no key"),
        (None, ["nothing"], "by nothing: it is not a column"),
        ("page", ["visitor"], "use its key, page"),
    ],
)
def test_columns_to_erase_by_that_cannot_be(lake: Lake, key: str | None, by: list[str], words: str) -> None:
    table = lake.create_table(NAME, VISITS, key=key)
    table.append(visits(0, 3))
    with pytest.raises(CallerError, match=words):
        erase(engine(table), ["v1@x.org"], by=by)
    assert table.count() == 3
