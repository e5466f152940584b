"""What the steps of the demo share: tables and generated rows, and results, printed as they arrive or collected for JSON."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.version import VERSION

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake, EmbeddedTable

ORDERS, READINGS = "shop.eu.orders", "ops.plant.readings"
TIMES = 50
ROWS = 1_000
THREADS, CALLS = 16, 100
ORDER = [
    pa.field("order_id", pa.string(), nullable=False),
    pa.field("customer", pa.string()),
    pa.field("quantity", pa.int32()),
    pa.field("amount", pa.decimal128(12, 2)),
    pa.field("ordered_at", pa.timestamp("us", "UTC")),
]
READING = pa.schema([("sensor_id", pa.string()), ("value", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Tour:
    """The state that the steps share."""

    def __init__(self, lake: EmbeddedLake, folder: Path) -> None:
        self.lake, self.folder = lake, folder

    @property
    def orders(self) -> EmbeddedTable:
        return self.lake.table(ORDERS)

    @property
    def readings(self) -> EmbeddedTable:
        return self.lake.table(READINGS)

    @property
    def orders_folder(self) -> Path:
        return self.folder / ORDERS.replace(".", "/")


def order(number: int, **changes: Any) -> dict[str, Any]:
    """Return a generated order."""
    made = {
        "order_id": f"order-{number:06}",
        "customer": f"customer {number % 997}",
        "quantity": number % 9 + 1,
        "amount": f"{number % 500}.{number % 100:02}",
        "ordered_at": START + dt.timedelta(seconds=number),
    }
    return made | changes


def reading(number: int) -> dict[str, Any]:
    """Return a generated reading."""
    return {
        "sensor_id": f"sensor-{number % 40:02}",
        "value": number % 1000 / 8,
        "at": START + dt.timedelta(milliseconds=number),
    }


def took(work: Callable[[], Any]) -> float:
    """Return the duration of a call in milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


class Audience:
    """Receives the results of the tour. This one prints nothing: the results are printed at the end as JSON."""

    def welcome(self, folder: Path, *, kept: bool) -> None:
        """Called when the tour starts."""

    @contextmanager
    def step(self, number: int, title: str) -> Iterator[None]:
        """Return a context manager around a step."""
        yield

    def line(self, label: str, text: str) -> None:
        """Called for a figure or a fact."""

    def check(self, claim: str, ok: bool) -> None:
        """Called for a claim that was checked."""

    def exhibit(self, show: Callable[[], None]) -> None:
        """Called for a table to show."""

    def farewell(self, *, ok: bool, seconds: float, kept: str) -> None:
        """Called when the tour ends."""


class Notes:
    """The results of one step. A context manager around its work."""

    def __init__(self, name: str, title: str, audience: Audience) -> None:
        self.name, self.title = name, title
        self.figures: dict[str, Any] = {}
        self.checks: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.error: str | None = None
        self._audience = audience
        self._began = 0.0

    def figure(self, name: str, value: Any, label: str, text: str) -> None:
        """Record a value under a name, and show it as text."""
        self.figures[name] = round(value, 2) if isinstance(value, float) else value
        self._audience.line(label, text)

    def fact(self, label: str, text: str) -> None:
        """Show a fact that was not measured."""
        self._audience.line(label, text)

    def check(self, claim: str, ok: bool) -> None:
        """Record a claim and whether it holds."""
        self.checks.append({"claim": claim, "ok": bool(ok)})
        self._audience.check(claim, bool(ok))

    def exhibit(self, show: Callable[[], None]) -> None:
        """Show a table."""
        self._audience.exhibit(show)

    @property
    def ok(self) -> bool:
        return self.error is None and all(check["ok"] for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        document = {
            "step": self.name,
            "title": self.title,
            "ok": self.ok,
            "seconds": self.seconds,
            "figures": self.figures,
            "checks": self.checks,
        }
        return document if self.error is None else {**document, "error": self.error}

    def __enter__(self) -> Notes:
        self._began = time.perf_counter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.seconds = round(time.perf_counter() - self._began, 3)
        if error is not None:
            self.error = getattr(error, "message", None) or f"{type(error).__name__}: {error}"


class Printed(Audience):
    """Prints the results to a terminal."""

    def __init__(self) -> None:
        from crannog.cli.output import console

        self._console = console()

    def welcome(self, folder: Path, *, kept: bool) -> None:
        from rich.text import Text

        where = str(folder) if kept else f"{folder}, which is deleted afterwards"
        self._console.print(
            Text.assemble(("Crannog ", "bold"), (VERSION, "bold"), "  a lakehouse for operational data on Delta Lake")
        )
        self._console.print(Text(f"Everything below runs now, in {where}.", style="dim"))

    @contextmanager
    def step(self, number: int, title: str) -> Iterator[None]:
        from rich.text import Text

        self._console.print()
        self._console.print(Text.assemble((f"{number:>2}  ", "dim"), (title, "bold")))
        with self._console.status(Text("running", style="dim"), spinner="dots"):
            yield

    def line(self, label: str, text: str) -> None:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=22, style="dim")
        grid.add_column()
        grid.add_row(Text(f"    {label}"), Text(text))
        self._console.print(grid)

    def check(self, claim: str, ok: bool) -> None:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            Text("✓", style="green") if ok else Text("✗", style="bold red"), Text(claim, style="" if ok else "bold red")
        )
        self._console.print(Padding(grid, (0, 0, 0, 4)))

    def exhibit(self, show: Callable[[], None]) -> None:
        self._console.print()
        show()

    def farewell(self, *, ok: bool, seconds: float, kept: str) -> None:
        from rich.text import Text

        verdict = Text.assemble(("All checks passed", "bold green"), f", in {seconds:.0f} s.")
        if not ok:
            verdict = Text(f"Some checks failed ({seconds:.0f} s); see ✗ above.", style="bold red")
        self._console.print()
        self._console.print(verdict)
        lines = [
            "Next: README.md for the first steps, ARCHITECTURE.md for how it works and why,",
            "docs/index.md for the guides, `crannog --help` for every command, `crannog serve` for the server.",
        ]
        if kept:
            lines.insert(0, f"The warehouse was kept; look at it with: crannog --warehouse {kept} tables")
        for line in lines:
            self._console.print(line, markup=False)
