"""The report of a chaos run: counts of what was done, what went wrong on purpose, and what was found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_journal import History

_USUAL, _MOST_MESSAGES = ("Unavailable", "Overloaded", "NotFound"), 5
FINDINGS = ("lost", "doubled", "torn", "wrong", "erased_back", "crashed")


@dataclass
class Report:
    """Counts of one run."""

    seed: str
    place: str
    clients: int
    seconds: float = 0.0
    warehouses: int = 0
    checks: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    failpoints: Counter[str] = field(default_factory=Counter)
    other_faults: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    in_doubt: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    unusual: dict[str, list[str]] = field(default_factory=dict)
    """A few messages of errors that are not the usual answer to a fault."""
    reads: int = 0
    checks_by: Counter[str] = field(default_factory=Counter)
    found: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in FINDINGS})

    @property
    def failed(self) -> bool:
        return any(self.found.values())

    def add_histories(self, histories: Iterable[History]) -> None:
        """Count what the clients of a warehouse did; called once, when it is over."""
        for history in histories:
            for turn, act in history.acts.items():
                answer = history.acknowledged.get(turn)
                if answer is None:
                    self.in_doubt[act.kind] += 1
                else:
                    self.acknowledged[act.kind + (" over HTTP" if answer.get("remote") else "")] += 1
            self.failpoints.update(history.failpoints)
            self.errors.update(error["error"] for error in history.errors)
            for error in history.errors:
                if error["error"] not in _USUAL:
                    self.unusual.setdefault(error["error"], []).append(error["message"])
                    del self.unusual[error["error"]][_MOST_MESSAGES:]
            self.other_faults.update(f"storage call {how}" for how in history.faults)
            self.reads += history.reads

    def as_dict(self) -> dict[str, Any]:
        kills = sum(self.kills.values())
        return {
            **{name: value for name, value in vars(self).items() if name != "found"},
            "kills_in_all": kills,
            "kills_per_second": round(kills / self.seconds, 2) if self.seconds else None,
            **{kind: len(found) for kind, found in self.found.items()},
            "findings": {kind: found[:20] for kind, found in self.found.items() if found},
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), indent=2, sort_keys=False) + "\n")

    def table(self) -> str:
        """Return the report for people, as Markdown."""
        made = self.as_dict()
        lines = ["| what | how often |", "|---|---|"]
        lines += [f"| seed | `{self.seed}` |", f"| warehouse | {self.place}, {self.clients} clients |"]
        lines += [f"| **kills** | **{made['kills_in_all']:,}** in {self.seconds:,.0f} s |"]
        for title in ("kills", "failpoints", "other_faults", "acknowledged", "in_doubt", "errors", "checks_by"):
            counts = ", ".join(f"{name} {count:,}" for name, count in sorted(vars(self)[title].items()))
            lines.append(f"| {title.replace('_', ' ')} | {counts or 'none'} |")
        lines += [f"| warehouses, checks, reads beside | {self.warehouses:,}, {self.checks:,}, {self.reads:,} |"]
        lines += [f"| **{kind.replace('_', ' ')}** | **{len(self.found[kind]):,}** |" for kind in FINDINGS]
        return "\n".join(lines)
