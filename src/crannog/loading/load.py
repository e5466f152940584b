"""A load: look through every file, decide about columns, then keep the rows batch by batch, each batch once.

Nothing is kept before every file was looked through whole: a file with bad rows, or columns that do not fit, is
refused before its first row. Batch ids come from the content, so a load that stopped midway goes on where it was
when it is run again, and a file that was loaded before is not loaded twice.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from crannog.errors import BadRows, CallerError, Conflict, CrannogError, NotFound, Overloaded
from crannog.formats.files import Source, found_files, sources
from crannog.lake.schemas import check_key, check_partition_by, user_columns, user_schema
from crannog.loading.columns import Comparison, check, compared, new_schema, together
from crannog.loading.csv_reader import CsvReader
from crannog.loading.json_reader import JsonReader
from crannog.loading.meter import Meter
from crannog.loading.options import LoadOptions
from crannog.loading.parquet_reader import ParquetReader
from crannog.loading.parts import FEW, Reader, Survey, Target
from crannog.loading.rejects import Rejects
from crannog.verbs.batch_ids import new_batch_id
from crannog.verbs.cancellation import Cancellation
from crannog.verbs.lake import LakeVerbs, TableVerbs
from crannog.verbs.load import BadRow, LoadedFile, LoadReport
from crannog.verbs.reports import Progress
from crannog.verbs.types import spark_name

BATCH_ROWS = 50_000
_FOLDS = 20
_PREVIEW_ROWS = 5

Batches = Iterator[tuple[str, pa.Table]]


@dataclass(frozen=True, slots=True)
class Bulk:
    """Another way to keep the batches of a file: which files it is for, and the act, which returns (rows, duplicate rows, batches)."""

    least_bytes: int
    keep: Callable[[str, str, Batches], tuple[int, int, int]]


def load(
    lake: LakeVerbs,
    files: Sequence[str] | str,
    name: str,
    options: LoadOptions,
    *,
    bulk: Bulk | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> LoadReport:
    """Load files into a table and tell what became of them.

    Raises NotFound for a table that is not there (unless `create`), SchemaMismatch for columns that do not fit,
    BadRows when more rows are bad than `max_bad` allows; after any of these nothing was kept.
    """
    started = time.perf_counter()
    names = found_files([files] if isinstance(files, str) else list(files))
    table = _table(lake, name, options)
    with sources(names, options.format, options.delimiter) as found:
        meter = Meter(progress, cancellation, sum(source.size for source in found))
        readers = [_reader(source, options) for source in found]
        plan = _Planning(name, table, options, readers, meter).plan()
        report = LoadReport(
            table=name,
            created=table is None,
            dry_run=options.dry_run,
            bytes=sum(source.size for source in found),
            columns=tuple({"name": f.name, "type": spark_name(f.type), "nullable": f.nullable} for f in plan.target.known),
            key=plan.key,
            drift=tuple(plan.comparison.drift),
            renamed={old: new for survey in plan.surveys for old, new in survey.renamed.items()},
            bad_rows=sum(survey.bad for survey in plan.surveys),
            first_bad=tuple([bad for survey in plan.surveys for bad in survey.first_bad][:FEW]),
            reject=options.reject or "",
        )
        if options.dry_run:
            return _rehearsed(report, plan, started)
        _check_bad(name, plan, options)
        if table is None:
            table = lake.create_table(name, plan.target.known, key=plan.key, partition_by=options.partition_by, if_exists="ok")
        elif plan.comparison.evolved is not None:
            table.evolve(plan.comparison.evolved)
        return _Keeping(table, name, plan, options, bulk, meter).keep(report, started)


def _table(lake: LakeVerbs, name: str, options: LoadOptions) -> TableVerbs | None:
    try:
        table = lake.table(name)
    except NotFound as error:
        if not options.create:
            raise NotFound(f"{error.message.rstrip('.')}; give --create to make it from the files") from None
        if options.mode == "upsert" and not options.key:
            raise CallerError(f"cannot upsert into {name}: a table without a key has no rows to replace; give --key") from None
        return None
    if options.create and options.key and tuple(table.key) != options.key:
        raise Conflict(f"table {name} exists, its key is {list(table.key)}, asked for {list(options.key)}")
    if options.mode == "upsert" and not table.key:
        raise CallerError(f"cannot upsert into {name}: it has no key; append to it, or create one with --key")
    return table


def _reader(source: Source, options: LoadOptions) -> Reader:
    if source.form == "csv":
        return CsvReader(source)
    if source.form == "parquet":
        return ParquetReader(source, flatten=options.flatten)
    return JsonReader(source, flatten=options.flatten)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is loaded, into which columns."""

    readers: Sequence[Reader]
    surveys: Sequence[Survey]
    target: Target
    key: tuple[str, ...]
    comparison: Comparison


class _Planning:
    """Looks through the files and settles the columns."""

    def __init__(self, name: str, table: TableVerbs | None, options: LoadOptions, readers: Sequence[Reader], meter: Meter) -> None:
        self._name, self._table, self._options, self._readers, self._meter = name, table, options, readers, meter

    def plan(self) -> Plan:
        return self._for_new() if self._table is None else self._for_existing(self._table)

    def _survey(self, target: Target) -> list[Survey]:
        self._meter.begin("check")
        found = []
        for reader in self._readers:
            found.append(reader.survey(target, self._meter.seen))
            self._meter.finished(reader.source.size)
        return found

    def _for_new(self) -> Plan:
        options = self._options
        required, filled = frozenset(options.key), frozenset(options.partition_by)
        given = pa.schema(list(options.types.items()))
        surveys = self._survey(Target(given, required, filled, complete=False))
        columns = together(surveys)
        schema = new_schema({**columns, **{name: kind for name, kind in options.types.items() if name in columns}}, options)
        schema = self._checked(schema)
        uneven = any(kind is not None and kind != schema.field(name).type for survey in surveys for name, kind in survey.columns.items())
        if uneven or not all(survey.sure for survey in surveys):
            surveys = self._survey(Target(schema, required, filled))
            # A guess that some value does not bear out is text; a type that was asked for stands.
            wrong = {name for survey in surveys for name in survey.bad_in if name and name not in options.types}
            wrong = {name for name in wrong if not self._only_faults_of_table(name, surveys)}
            if wrong:
                schema = pa.schema([pa.field(f.name, pa.string(), f.nullable) if f.name in wrong else f for f in schema])
                surveys = self._survey(Target(schema, required, filled))
        return Plan(self._readers, surveys, Target(schema, required, filled), options.key, Comparison())

    def _only_faults_of_table(self, name: str, surveys: Sequence[Survey]) -> bool:
        """Tell whether a column's bad rows are null keys and empty partitions, which no other type would mend."""
        return name in self._options.key or name in self._options.partition_by

    def _checked(self, schema: pa.Schema) -> pa.Schema:
        """Raise CallerError, before anything is made, for what no table can have."""
        if self._options.key and self._options.partition_by:
            raise CallerError(f"table {self._name} cannot have both a key and partitions; leave one out")
        schema = check_key(user_schema(schema), self._options.key)
        check_partition_by(schema, self._options.partition_by)
        return schema

    def _for_existing(self, table: TableVerbs) -> Plan:
        schema = user_columns(table.schema)
        required = frozenset(field.name for field in schema if not field.nullable)
        filled = frozenset(table.describe()["partition_by"])
        target = Target(schema, required, filled)
        surveys = self._survey(target)
        comparison = compared(schema, together(surveys), self._wider(surveys, target), self._options)
        if not self._options.dry_run:
            check(self._name, schema, comparison)
        if comparison.evolved is not None:
            target = Target(comparison.evolved, required, filled)
            surveys = self._survey(target)
        return Plan(self._readers, surveys, target, tuple(table.key), comparison)

    def _wider(self, surveys: list[Survey], target: Target) -> dict[str, pa.DataType]:
        """Return the columns whose values do not fit and which type would hold them; those with a few bad rows are left out."""
        suspects = {name for survey in surveys for name in survey.bad_in if name in target.known.names}
        if not suspects:
            return {}
        known = pa.schema([field for field in target.known if field.name not in suspects])
        types = together([reader.survey(replace(target, known=known, complete=False), self._meter.seen) for reader in self._readers])
        found = {}
        for name in suspects:
            kind, current = types.get(name), target.known.field(name).type
            widens = kind is not None and (
                (pa.types.is_integer(current) and kind == pa.int64()) or (current == pa.float32() and kind == pa.float64())
            )
            # A few bad rows are told one by one, even if no other row has a value there.
            bad = sum(survey.bad_in.get(name, 0) for survey in surveys)
            fits_nowhere = bad > FEW and not any(survey.good_in.get(name) for survey in surveys)
            if kind is not None and kind != current and (widens or (fits_nowhere and name not in target.required)):
                found[name] = kind
        return found


def _check_bad(name: str, plan: Plan, options: LoadOptions) -> None:
    bad = sum(survey.bad for survey in plan.surveys)
    most = options.most_bad
    if most is None or bad <= most:
        return
    first = [str(row) for survey in plan.surveys for row in survey.first_bad][:3]
    more = f"; and {bad - len(first):,} more" if bad > len(first) else ""
    allowed = f", {most:,} may be" if most else ""
    hint = "" if options.reject else ". Give --reject FILE to put them aside and keep the others"
    raise BadRows(f"cannot load into {name}: {bad:,} bad row{'s' * (bad != 1)}{allowed}; nothing was kept: {'; '.join(first)}{more}{hint}")


def _rehearsed(report: LoadReport, plan: Plan, started: float) -> LoadReport:
    files = tuple(
        LoadedFile(reader.source.called, reader.source.form, reader.source.size, survey.rows, survey.bad)
        for reader, survey in zip(plan.readers, plan.surveys, strict=True)
    )
    shown: list[dict[str, Any]] = []
    for reader in plan.readers:
        if len(shown) >= _PREVIEW_ROWS:
            break
        for block in reader.blocks(plan.target, lambda _consumed, _rows: None):
            shown += block.rows.slice(0, _PREVIEW_ROWS - len(shown)).to_pylist(maps_as_pydicts="strict")
            break
    return replace(
        report, files=files, rows=sum(file.rows for file in files), first_rows=tuple(shown), seconds=round(time.perf_counter() - started, 3)
    )


class _Keeping:
    """Keeps the rows of a plan."""

    def __init__(self, table: TableVerbs, name: str, plan: Plan, options: LoadOptions, bulk: Bulk | None, meter: Meter) -> None:
        self._table, self._name, self._plan, self._options, self._bulk, self._meter = table, name, plan, options, bulk, meter
        self._kept = 0

    def keep(self, report: LoadReport, started: float) -> LoadReport:
        self._meter.begin("load")
        try:
            with Rejects(self._options.reject) as rejects:
                files = tuple(
                    self._file(reader, survey, rejects) for reader, survey in zip(self._plan.readers, self._plan.surveys, strict=True)
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
            rest = "what was kept stays; loading with --again would keep it twice"
        told = f"{self._kept:,} rows were kept before it stopped; {rest}"
        if isinstance(error, CrannogError):
            error.message = f"{error.message.rstrip('.')}. {told[0].upper()}{told[1:]}"
            error.args = (error.message,)
        else:
            error.args = (told,)

    def _file(self, reader: Reader, survey: Survey, rejects: Rejects) -> LoadedFile:
        source = reader.source
        one_time = new_batch_id() if self._options.again else ""
        content = f"{survey.digest}:{self._options.fingerprint()}:{source.form}:{one_time}"
        key = f"load-{hashlib.sha256(content.encode()).hexdigest()[:40]}"
        bad: list[BadRow] = []
        batches = self._batches(reader, key, rejects, bad)
        bulk = self._bulk if not self._plan.key and self._bulk is not None and source.size >= self._bulk.least_bytes else None
        rows, duplicate, count = bulk.keep(self._name, key, batches) if bulk else self._stream(batches)
        self._meter.finished(source.size)
        return LoadedFile(
            source.called,
            source.form,
            source.size,
            rows,
            survey.bad,
            duplicate,
            count,
            duplicate=bool(duplicate) and not rows,
            engine="spark" if bulk else "stream",
        )

    def _batches(self, reader: Reader, key: str, rejects: Rejects, bad: list[BadRow]) -> Batches:
        number = 0
        for block in reader.blocks(self._plan.target, self._meter.seen):
            rejects.add(block.bad)
            count = block.rows.num_rows
            parts = math.ceil(count / BATCH_ROWS)
            size = math.ceil(count / parts) if parts else 0
            for start in range(0, count, size or 1):
                yield f"{key}-{number:06}", block.rows.slice(start, size)
                number += 1

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

    def _write(self, rows: pa.Table, batch_id: str) -> Any:
        act = self._table.upsert if self._options.mode == "upsert" else self._table.append
        for _ in range(_FOLDS):
            try:
                return act(rows, batch_id)
            except Overloaded as error:
                # The stage is full: folding makes room. If there is nothing to fold, somebody else is at work.
                if not self._table.fold().changes:
                    time.sleep(error.retry_after_s or 1.0)
        return act(rows, batch_id)
