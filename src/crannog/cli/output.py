"""Text output: tables that fit 80 columns, short lists of facts, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crannog.cli.plain_output import shown

if TYPE_CHECKING:
    from rich.console import Console

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

    cells = [[shown(value) for value in row] for row in rows]
    if not cells:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(
            column, justify="right" if column in right else "left", overflow="fold", no_wrap=column in right
        )
    for row in cells:
        table.add_row(*map(Text, row))
    console().print(table)


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
