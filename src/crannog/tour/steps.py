"""The steps of the demo: each runs a feature, measures it, and checks its claims."""

from __future__ import annotations

import datetime as dt
import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from crannog.cli.maintenance import result_of, show_receipt, show_tasks
from crannog.cli.output import counted, of_bytes
from crannog.cli.tables import show_history
from crannog.embedded import EmbeddedLake
from crannog.spark.session import spark_runtime
from crannog.tour.served import builds, served, sql, traces
from crannog.tour.shared import (
    CALLS,
    ORDER,
    ORDERS,
    READING,
    READINGS,
    ROWS,
    THREADS,
    TIMES,
    Notes,
    Tour,
    order,
    reading,
    took,
)


def tables(tour: Tour, note: Notes) -> None:
    ms = took(lambda: tour.lake.create_table(ORDERS, pa.schema(ORDER), key="order_id"))
    tour.lake.create_table(READINGS, READING, partition_by="_date")
    note.fact(ORDERS, "key order_id: a later row replaces the row with the same key")
    note.fact(READINGS, "append-only, partitioned by the day of the write")
    note.figure("create_ms", ms, "created in", f"{ms:.0f} ms each")
    note.check(
        "no Java process runs yet: creating and writing tables does not need Spark",
        spark_runtime(tour.lake.settings).state() == "absent",
    )


def appends(tour: Tour, note: Notes) -> None:
    table = tour.readings
    for size in (1, ROWS):
        batches = [[reading(n * size + i) for i in range(size)] for n in range(TIMES + 5)]
        times = [took(lambda batch=batch: table.append(batch)) for batch in batches][5:]  # type: ignore[misc]
        p50 = statistics.median(times)
        note.figure(
            f"append_{size}_p50_ms",
            p50,
            counted(size, "row"),
            f"{p50:.1f} ms until acknowledged (median of {TIMES})",
        )
    note.fact("acknowledged", "means synced to disk, file and folder, and visible to every reader")
    note.check(f"every row is stored: {(TIMES + 5) * (ROWS + 1):,}", table.count() == (TIMES + 5) * (ROWS + 1))


def group_commit(tour: Tour, note: Notes) -> None:
    table = tour.readings
    before = table.count()

    def send(thread: int) -> None:
        for call in range(CALLS):
            table.append([reading(thread * CALLS + call)])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rate = THREADS * CALLS / (took(run) / 1000)
    note.figure(
        "group_commit_per_s",
        round(rate),
        f"{THREADS} threads",
        f"{rate:,.0f} acknowledged 1-row appends per second; callers share files",
    )
    note.check(f"all {THREADS * CALLS:,} are stored, once", table.count() == before + THREADS * CALLS)


def twice(tour: Tour, note: Notes) -> None:
    batch = [order(number) for number in range(20 * ROWS)]
    first = tour.orders.append(batch, batch_id="import-2026-01")
    again = tour.orders.append(batch, batch_id="import-2026-01")
    with EmbeddedLake(str(tour.folder), settings=tour.lake.settings) as other:
        elsewhere = other.table(ORDERS).append(batch, batch_id="import-2026-01")
    note.figure(
        "rows",
        first.rows,
        "import-2026-01",
        f"{counted(first.rows, 'order')}, sent three times, once over another connection",
    )
    note.check(
        "the second and the third are acknowledged as duplicates",
        not first.duplicate and again.duplicate and elsewhere.duplicate,
    )
    note.check(f"the table has {first.rows:,} rows", tour.orders.count() == first.rows)


def visible(tour: Tour, note: Notes) -> None:
    table = tour.orders
    table.preview(1)
    before = table.count()
    table.append([order(20 * ROWS)])
    counted_rows = 0

    def count() -> None:
        nonlocal counted_rows
        counted_rows = table.count()

    ms = took(count)
    note.figure("count_ms", ms, "count", f"{counted_rows:,} rows, {ms:.1f} ms after the acknowledgement")
    note.check("the row just written is among them", counted_rows == before + 1)
    some, everything = took(lambda: table.preview(10)), took(lambda: tour.readings.to_arrow())
    note.figure("preview_ms", some, "ten rows", f"{some:.1f} ms, by DuckDB in this process")
    note.figure("scan_ms", everything, "all readings", f"{tour.readings.count():,} rows in {everything:.0f} ms")


def spark_starts(tour: Tour, note: Notes) -> None:
    runtime = spark_runtime(tour.lake.settings)
    runtime.start_in_background()
    table = tour.readings
    times: list[float] = []
    while runtime.state() == "starting":
        times.append(took(lambda: table.append([reading(len(times))])))
        time.sleep(0.02)  # leave processor time for the start
    tour.lake.operations.warehouse.spark()
    note.figure(
        "spark_start_s",
        runtime.start_seconds,
        "Spark started in",
        f"{runtime.start_seconds:.1f} s, in the background",
    )
    p50 = statistics.median(times)
    note.figure(
        "appends_meanwhile",
        len(times),
        "meanwhile",
        f"{len(times):,} appends were acknowledged, {p50:.1f} ms each (median)",
    )
    note.fact(
        "Java", f"started with {os.environ.get('JAVA_TOOL_OPTIONS') or 'default options'}, which suits a short run"
    )
    note.check("writers did not wait for Spark", len(times) > 1)


def fold(tour: Tour, note: Notes) -> None:
    for table in (tour.readings, tour.orders):
        rows = table.count()
        report = table.fold()
        name = table.name.rpartition(".")[2]
        note.figure(
            f"fold_{name}",
            {"staged_rows": report.staged_rows, "changes": report.changes, "seconds": report.seconds},
            name,
            f"{counted(report.changes, 'change')} of {report.staged_rows:,} rows into {counted(report.files_after, 'file')} in {report.seconds:.1f} s",
        )
        note.check(
            f"Delta version {report.version} has the same {rows:,} rows, nothing is staged",
            report.final_rows == rows == table.count() and not table.describe()["staged_rows"],
        )


def change(tour: Tour, note: Notes) -> None:
    table = tour.orders
    before = table.count()
    upserted = took(lambda: table.upsert([order(7, customer="Ada Lovelace")]))
    deleted = took(
        lambda: table.delete(["order-000001", "order-000002", "order-000003"], actor="demo", reason="returned")
    )
    note.figure("upsert_ms", upserted, "upsert", f"one order replaced in {upserted:.1f} ms")
    note.figure("delete_ms", deleted, "delete", f"three orders in {deleted:.1f} ms")
    rows = {row["order_id"]: row for row in table.to_arrow().to_pylist()}
    note.check(
        "reads return the new row, not the old one",
        rows["order-000007"]["customer"] == "Ada Lovelace" and len(rows) == before - 3,
    )
    note.check(
        f"{before - 3:,} rows visible, {before:,} raw until the delete is folded",
        table.count() == before - 3 and table.count(raw=True) == before,
    )
    note.check(
        "the three deletes are listed, with actor and reason", [t["actor"] for t in table.tombstones()] == ["demo"] * 3
    )


def compact(tour: Tour, note: Notes) -> None:
    report = tour.orders.compact()
    note.figure(
        "compact_orders_s",
        report.seconds,
        "orders",
        f"{report.tombstones_applied} deletes applied, {report.rows_dropped_by_tombstones} rows dropped, {report.seconds:.1f} s",
    )
    note.check(
        "raw and visible rows are the same again, and no delete is pending",
        tour.orders.count(raw=True) == report.final_rows == tour.orders.count() and not tour.orders.tombstones(),
    )
    tour.readings.append([reading(number) for number in range(ROWS)])
    rows = tour.readings.count()
    merged = tour.readings.compact()
    size = f"{of_bytes(merged.bytes_before)} → {of_bytes(merged.bytes_after)}"
    note.figure(
        "compact_readings_s", merged.seconds, "readings", f"{'; '.join(merged.plan)}; {size}, {merged.seconds:.1f} s"
    )
    note.check(f"{rows:,} rows before and after", rows == merged.final_rows == tour.readings.count())


def open_elsewhere(tour: Tour, note: Notes) -> None:
    rows, path = tour.orders.count(), str(tour.orders_folder)
    found = {"delta-rs": pa.table(DeltaTable(path).to_pyarrow_dataset().to_table(columns=["order_id"])).num_rows}
    try:
        import polars
    except ModuleNotFoundError:
        note.fact("Polars", "is not installed; skipped")
    else:
        found["Polars"] = polars.scan_delta(path).select(polars.len()).collect().item()
    found["delta-spark"] = tour.lake.operations.warehouse.spark().read.format("delta").load(path).count()
    for reader, count in found.items():
        note.figure(f"rows_{reader}", count, reader, f"{count:,} rows")
    note.check(f"a plain Delta table: every reader finds the {rows:,} rows of Crannog", set(found.values()) == {rows})


def time_travel(tour: Tour, note: Notes) -> None:
    def rows_at(version: int) -> int:
        return int(DeltaTable(str(tour.orders_folder), version=version).to_pyarrow_dataset().count_rows())

    versions = sorted(entry["version"] for entry in tour.orders.history())
    counts = {version: rows_at(version) for version in versions}
    for version, count in counts.items():
        note.fact(f"version {version}", f"{count:,} rows")
    note.figures["rows_by_version"] = {str(version): count for version, count in counts.items()}
    note.check("the version before the deletes still has the three orders", counts[1] == counts[versions[-1]] + 3)


def evolve(tour: Tour, note: Notes) -> None:
    fields = [field.with_type(pa.int64()) if field.name == "quantity" else field for field in ORDER]
    report = tour.orders.evolve(pa.schema([*fields, pa.field("note", pa.string())]))
    note.figure(
        "evolve_s",
        report.seconds,
        "evolved in",
        f"{report.seconds:.1f} s, {counted(report.files_rewritten, 'file')} rewritten and verified",
    )
    for line in (*report.added, *report.widened):
        note.fact("change", line)
    tour.orders.upsert([order(8, quantity=5_000_000_000, note="by container")])
    rows = {row["order_id"]: row for row in tour.orders.to_arrow().to_pylist()}
    note.check(
        "old and new rows can be read together",
        rows["order-000009"]["note"] is None and rows["order-000008"]["quantity"] == 5_000_000_000,
    )


def erase(tour: Tour, note: Notes) -> None:
    wanted, rows = "order-000000", tour.orders.count()
    before = files_with(tour.orders_folder, wanted)
    note.figure(
        "files_with_the_id_before",
        len(before),
        "before",
        f"{wanted} is in {counted(len(before), 'file')} of the table's folder: data, old versions, stage, log",
    )
    receipt = tour.orders.erase([wanted], actor="demo", reason="right to erasure")
    after = files_with(tour.orders_folder, wanted)
    note.figure("files_with_the_id_after", len(after), "after", f"in {counted(len(after), 'file')}")
    note.figures["receipt"] = asdict(receipt)
    note.check("the id was found before, and is in no file now", bool(before) and not after)
    note.check(
        "the receipt proves it: nothing is left anywhere",
        receipt.rows_erased == 1 and not any(place.after for place in receipt.places),
    )
    note.check("no other order was removed", tour.orders.count() == rows - 1)
    note.exhibit(lambda: show_receipt(asdict(receipt)))


def files_with(folder: Path, text: str) -> list[Path]:
    """Search every file for a text: in its bytes, and in the decompressed values of Parquet files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        path
        for path in files
        if text.encode() in path.read_bytes() or (path.suffix == ".parquet" and _holds(path, text))
    ]


def _holds(path: Path, text: str) -> bool:
    for batch in pq.ParquetFile(path).iter_batches():
        for column in batch.columns:
            if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, text)).as_py():
                return True
            if pa.types.is_nested(column.type) and text in str(column.to_pylist()):
                return True
    return False


def records(tour: Tour, note: Notes) -> None:
    found, entries = tour.lake.tasks(), tour.orders.history()
    for task in found:
        task["last_result"] = result_of(task)
    for entry in entries:
        entry["timestamp"] = dt.datetime.fromtimestamp(entry["timestamp"] // 1000, dt.UTC)
    note.figure("versions", len(entries), "history", f"{counted(len(entries), 'version')} of {ORDERS}, each one commit")
    note.check(
        "the vacuum after the compaction is among the tasks",
        any(task["task_name"] == f"vacuum-after-compact:{ORDERS}" for task in found),
    )
    note.check("the audit log has actor and reason of four deletes, and no key", len(tour.orders.audit()) == 4)
    note.exhibit(lambda: show_history(entries))
    note.exhibit(lambda: show_tasks(found))


STEPS: tuple[tuple[str, Callable[[Tour, Notes], None]], ...] = (
    ("Two tables, created without Spark", tables),
    ("Writes, durable in milliseconds", appends),
    ("Sixteen concurrent writers", group_commit),
    ("A batch sent twice is stored once", twice),
    ("Visible immediately, read in milliseconds", visible),
    ("Spark starts in the background", spark_starts),
    ("Spark folds staged rows into Delta Lake", fold),
    ("Upsert and delete", change),
    ("Compaction by Spark", compact),
    ("Any Delta reader can open it", open_elsewhere),
    ("Time travel", time_travel),
    ("A new column and a wider one", evolve),
    ("Erasure, with a receipt", erase),
    ("One query, three engines", sql),
    ("A server, and a client without Spark", served),
    ("Traces over OTLP, searched, derived and erased", traces),
    ("Builds, in the same lake", builds),
    ("History, tasks and audit log", records),
)
