"""Keeping the rows of a plan: batches named after the content, so that each is kept once however often it is sent.

Bad rows go to a file: one line of JSON for each, with where it was, why it was left out, and what it was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from crannog.api.arguments import new_batch_id
from crannog.api.reports import BadRow, LoadedFile, LoadReport, WriteReceipt
from crannog.api.table import Table
from crannog.errors import BadRows, CallerError, Conflict, CrannogError, Overloaded
from crannog.formats.input_files import Source
from crannog.formats.json_values import to_plain_json
from crannog.tables.load_options import LoadOptions
from crannog.tables.load_parts import Meter, Reader, Survey
from crannog.tables.load_plan import Plan

BATCH_ROWS = 50_000
BATCH_BYTES = 64 * 1024**2
_FOLDS = 20
_FULL_S, _LONGEST_PAUSE_S, _PATIENCE_S = 5.0, 10.0, 120.0
Batches = Iterator[tuple[str, pa.Table]]
AddBad = Callable[[list[tuple[BadRow, Any]]], None]


@contextmanager
def _rejects(path: str | None) -> Iterator[AddBad]:
    """Yield a function that writes bad rows to a file, if one is given; the file is there, perhaps empty, after any load.

    `row` in each line is the row as it was: its columns, or the text that could not be read.
    """
    if path is None:
        yield lambda _rows: None
        return
    with ExitStack() as opened:
        try:
            file = opened.enter_context(Path(path).open("w", encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            raise CallerError(f"cannot write bad rows to {path}: {error.strerror or error}") from None

        def add(rows: list[tuple[BadRow, Any]]) -> None:
            for bad, row in rows:
                file.write(json.dumps({**asdict(bad), "row": to_plain_json(row)}, ensure_ascii=False) + "\n")
            file.flush()

        yield add


@dataclass(frozen=True, slots=True)
class Bulk:
    """Another way to keep the batches of a file: which files it is for, and the act, which returns (rows, duplicate rows, batches)."""

    least_bytes: int
    keep: Callable[[str, Batches], tuple[int, int, int]]


@dataclass
class Keeping:
    """Keeps the rows of a plan."""

    _table: Table
    _name: str
    _plan: Plan
    _options: LoadOptions
    _bulk: Bulk | None
    _meter: Meter
    _kept: int = 0

    def keep(self, report: LoadReport, started: float) -> LoadReport:
        self._meter.begin("load")
        try:
            with _rejects(self._options.reject) as add_bad:
                files = tuple(
                    self._file(reader, survey, add_bad)
                    for reader, survey in zip(self._plan.readers, self._plan.surveys, strict=True)
                )
        except (CrannogError, KeyboardInterrupt) as error:
            self._tell_rest(error)
            raise
        seconds = time.perf_counter() - started
        rows, duplicate = sum(file.rows for file in files), sum(file.duplicate_rows for file in files)
        return replace(
            report,
            files=files,
            rows=rows,
            duplicate_rows=duplicate,
            duplicates=sum(file.duplicate for file in files),
            batches=sum(file.batches for file in files),
            seconds=round(seconds, 3),
            rows_per_s=round((rows + duplicate) / max(seconds, 1e-6), 1),
        )

    def _tell_rest(self, error: BaseException) -> None:
        rest = "load the same files again to go on: nothing is kept twice"
        if self._options.again:
            rest = "what was kept stays; loading with the option again would keep it twice"
        message = f"{self._kept:,} rows were kept before it stopped; {rest}"
        if isinstance(error, CrannogError):
            error.message = f"{error.message.rstrip('.')}. {message[0].upper()}{message[1:]}"
            error.args = (error.message,)
        else:
            error.args = (message,)

    def _file(self, reader: Reader, survey: Survey, add_bad: AddBad) -> LoadedFile:
        source = reader.source
        one_time = new_batch_id() if self._options.again else ""
        form = f"csv {source.delimiter}" if source.form == "csv" else source.form
        content = f"{survey.digest}:{self._options.fingerprint()}:{form}:{one_time}"
        key = f"load-{hashlib.sha256(content.encode()).hexdigest()[:40]}"
        batches = self._batches(reader, survey, key, add_bad)
        bulk = None if self._plan.key else self._bulk
        if bulk is not None and source.size < bulk.least_bytes:
            bulk = None
        rows, duplicate, count = bulk.keep(key, batches) if bulk else self._stream(batches)
        self._meter.finished(source.size)
        return LoadedFile(
            source.name,
            source.form,
            source.size,
            rows,
            survey.bad,
            duplicate,
            count,
            duplicate=bool(duplicate) and not rows,
            engine="spark" if bulk else "stream",
        )

    def _batches(self, reader: Reader, survey: Survey, key: str, add_bad: AddBad) -> Batches:
        """Yield the rows of a file in batches that are the same whenever it is read, each with its name."""
        self._check_unchanged(reader.source, survey)
        for number, rows in enumerate(_cut(self._rows(reader, survey, add_bad))):
            yield f"{key}-{number:06}", rows
        self._check_unchanged(reader.source, survey)

    def _rows(self, reader: Reader, survey: Survey, add_bad: AddBad) -> Iterator[pa.Table]:
        bad = 0
        for block in reader.blocks(self._plan.target, self._meter.seen):
            add_bad(block.bad)
            bad += len(block.bad)
            if bad > survey.bad:
                self._check_unchanged(reader.source, survey)
                raise BadRows(
                    f"cannot load into {self._name}: {block.bad[-1][0]}; it was not found when the file was looked through"
                )
            yield block.rows

    def _check_unchanged(self, source: Source, survey: Survey) -> None:
        """Raise Conflict if somebody wrote to the file since it was looked through: names of batches stand for its content."""
        if source.stamp != survey.stamp:
            raise Conflict(
                f"cannot load {source.name}: it changed while it was loaded; load a file that nobody writes to"
            )

    def _stream(self, batches: Batches) -> tuple[int, int, int]:
        rows = duplicate = count = 0
        for batch_id, batch in batches:
            receipt = self._write(batch, batch_id)
            count += 1
            if receipt.duplicate:
                duplicate += batch.num_rows
            else:
                rows += batch.num_rows
                self._kept += batch.num_rows
        return rows, duplicate, count

    def _write(self, rows: pa.Table, batch_id: str) -> WriteReceipt:
        """Keep a batch; while others use up what there is, wait, and fold a stage that is full. Overloaded when that helps no more."""
        act = self._table.upsert if self._options.mode == "upsert" else self._table.append
        folds, waited_s = 0, 0.0
        while True:
            try:
                return act(rows, batch_id)
            except Overloaded as error:
                if folds >= _FOLDS or waited_s >= _PATIENCE_S:
                    raise
                pause_s = min(error.retry_after_s or _FULL_S, _LONGEST_PAUSE_S)
            # Too many requests pass in a moment; a full stage asks for a longer wait, and folding makes room.
            if pause_s >= _FULL_S:
                folds += 1
                if self._folded():
                    continue
            self._meter.check()
            time.sleep(pause_s)
            waited_s += pause_s

    def _folded(self) -> bool:
        try:
            return bool(self._table.fold().changes)
        except Overloaded:
            return False


def _cut(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of blocks in batches of `BATCH_ROWS`, or less where they would be too large."""
    pending: list[pa.Table] = []
    for block in blocks:
        pending.append(block)
        if sum(part.num_rows for part in pending) < BATCH_ROWS and sum(part.nbytes for part in pending) < BATCH_BYTES:
            continue
        whole = pa.concat_tables(pending)
        while whole.num_rows >= BATCH_ROWS:
            yield whole.slice(0, BATCH_ROWS)
            whole = whole.slice(BATCH_ROWS)
        if whole.nbytes >= BATCH_BYTES:
            yield whole
            whole = whole.slice(whole.num_rows)
        pending = [whole]
    rest = pa.concat_tables(pending) if pending else None
    if rest is not None and rest.num_rows:
        yield rest
