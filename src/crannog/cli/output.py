"""Text output: values as text, tables that fit 80 columns, short lists of facts, and a progress bar.

rich is imported where it is used: it is slow to load, and output as JSON does not need it.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crannog.formats.json_values import to_plain_json

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_CELL = 200


def shown(value: Any) -> str:
    """Return a value as one short line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return moment(value)
    if isinstance(value, (Mapping, list, tuple)):
        text = json.dumps(to_plain_json(value), ensure_ascii=False)
    else:
        text = str(to_plain_json(value))
    text = " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def moment(value: dt.datetime) -> str:
    """Return a time in UTC, without trailing zeros."""
    text = value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def of_bytes(count: float) -> str:
    """Return a size in a suitable unit."""
    if abs(count) < 1024:
        return f"{count:,.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if abs(count) < 1024:
            return f"{count:,.1f} {unit}"
    return f"{count / 1024:,.1f} GiB"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") and noun != "key" else f"{count:,} {noun}s"


def ago(time: dt.timedelta) -> str:
    """Return a duration in its largest unit."""
    seconds = max(0.0, time.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


_NARROWEST = 12


def console() -> Console:
    """Return the console for standard output."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def say(text: str) -> None:
    """Print a sentence, wrapped to the width of the terminal."""
    from rich.text import Text

    console().print(Text(text))


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print a sentence, and below it a list of names and values."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text(title, style="bold"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(f"  {name}"), Text(value))
    out.print(grid)


def listing(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, right: Sequence[str] = ()) -> None:
    """Print a table, with the columns in `right` aligned right; print `empty` if there are no rows."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(
            column, justify="right" if column in right else "left", overflow="fold", no_wrap=column in right
        )
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(shown(value)) for value in row))
    console().print(table if table.row_count else Text(empty))


def rows(columns: Sequence[str], values: Sequence[Sequence[Any]], *, empty: str) -> None:
    """Print rows of a table: as a table if it fits, otherwise one value per line."""
    from rich.text import Text

    out = console()
    cells = [[shown(value) for value in row] for row in values]
    widths = [
        max(len(name), *(min(len(row[place]), 2 * _NARROWEST) for row in cells)) if cells else len(name)
        for place, name in enumerate(columns)
    ]
    if sum(widths) + len(widths) - 1 <= out.width:
        listing(columns, values, empty=empty)
        return
    if not cells:
        say(empty)
    label = max(map(len, columns))
    for number, row in enumerate(cells, 1):
        out.print(Text(f"row {number}", style="bold"))
        for name, cell in zip(columns, row, strict=True):
            out.print(Text.assemble((f"  {name:<{label}}  ", "dim"), cell), overflow="fold")


@contextmanager
def bar(title: str) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar on standard error if that is a terminal; yields the callback for progress."""
    if not sys.stderr.isatty():
        yield lambda _step, _share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # The text gets the rest of the line: on a narrow terminal it is cut, not the bar and the numbers.
    words = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=words),
        BarColumn(_NARROWEST, table_column=Column(width=_NARROWEST)),
        TextColumn("{task.percentage:>3.0f} %", table_column=Column(width=5)),
        TimeElapsedColumn(table_column=Column(width=7)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda step, share: progress.update(task, description=f"{title}: {step}", completed=share)
