"""A load: look through every file, decide about columns, then keep the rows batch by batch, each batch once.

Nothing is kept before every file was looked through whole: a file with bad rows, or columns that do not fit, is
refused before its first row. Batch ids come from the content, so a load that stopped midway goes on where it was
when it is run again, and a file that was loaded before is not loaded twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from crannog.api.lake import Lake
from crannog.api.reports import Cancellation, LoadedFile, LoadReport, Progress
from crannog.api.result import spark_name
from crannog.api.table import Table
from crannog.errors import BadRows, CallerError, Conflict, NotFound
from crannog.formats.input_files import Source, find_files, sources
from crannog.tables.csv_reader import CsvReader
from crannog.tables.json_reader import JsonReader
from crannog.tables.load_options import LoadOptions
from crannog.tables.load_parts import FEW, Meter, Reader
from crannog.tables.load_plan import Plan, Planning
from crannog.tables.load_write import Bulk, Keeping
from crannog.tables.parquet_reader import ParquetReader

_PREVIEW_ROWS = 5


def load(
    lake: Lake,
    files: Sequence[str | PathLike[str]] | str | PathLike[str],
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
    names = find_files([fspath(file) for file in ([files] if isinstance(files, (str, PathLike)) else files)])
    if options.reject is not None and any(Path(options.reject).resolve() == Path(file).resolve() for file in names):
        raise CallerError(f"bad rows cannot go to {options.reject}, which is loaded; give another file")
    table = _table(lake, name, options)
    with sources(names, options.format, options.delimiter) as found:
        meter = Meter(progress, cancellation, sum(source.size for source in found))
        readers = [_reader(source, options) for source in found]
        plan = Planning(name, table, options, readers, meter).plan()
        report = LoadReport(
            table=name,
            created=table is None,
            dry_run=options.dry_run,
            bytes=sum(source.size for source in found),
            columns=tuple(
                {"name": f.name, "type": spark_name(f.type), "nullable": f.nullable} for f in plan.target.known
            ),
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
            table = lake.create_table(
                name, plan.target.known, key=plan.key, partition_by=options.partition_by, if_exists="ok"
            )
        elif plan.comparison.evolved is not None:
            table.evolve(plan.comparison.evolved)
        return Keeping(table, name, plan, options, bulk, meter).keep(report, started)


def _table(lake: Lake, name: str, options: LoadOptions) -> Table | None:
    try:
        table = lake.table(name)
    except NotFound as error:
        if not options.create:
            raise NotFound(f"{error.message.rstrip('.')}; set the option create to make it from the files") from None
        if options.mode == "upsert" and not options.key:
            raise CallerError(
                f"cannot upsert into {name}: a table without a key has no rows to replace; give a key"
            ) from None
        return None
    if options.key and tuple(table.key) != options.key:
        raise Conflict(f"table {name} exists, its key is {list(table.key)}, asked for {list(options.key)}")
    if options.mode == "upsert" and not table.key:
        raise CallerError(f"cannot upsert into {name}: it has no key; append to it, or create it with a key")
    return table


def _reader(source: Source, options: LoadOptions) -> Reader:
    if source.form == "csv":
        return CsvReader(source)
    if source.form == "parquet":
        return ParquetReader(source, flatten=options.flatten)
    return JsonReader(source, flatten=options.flatten)


def _check_bad(name: str, plan: Plan, options: LoadOptions) -> None:
    bad = sum(survey.bad for survey in plan.surveys)
    most = options.most_bad
    if most is None or bad <= most:
        return
    first = [str(row) for survey in plan.surveys for row in survey.first_bad][:3]
    more = f"; and {bad - len(first):,} more" if bad > len(first) else ""
    allowed = f", {most:,} may be" if most else ""
    hint = "" if options.reject else ". Set the option reject to a file to put them aside and load the others"
    raise BadRows(
        f"cannot load into {name}: {bad:,} bad row{'s' * (bad != 1)}{allowed}; nothing was kept: {'; '.join(first)}{more}{hint}"
    )


def _rehearsed(report: LoadReport, plan: Plan, started: float) -> LoadReport:
    files = tuple(
        LoadedFile(reader.source.name, reader.source.form, reader.source.size, survey.rows, survey.bad)
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
        report,
        files=files,
        rows=sum(file.rows for file in files),
        first_rows=tuple(shown),
        seconds=round(time.perf_counter() - started, 3),
    )
