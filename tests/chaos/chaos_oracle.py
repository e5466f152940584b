"""The oracle: what must be in the warehouse and what may be, from the journals alone, and how the warehouse differs.

Acknowledged is there, once. Begun and not acknowledged is there once, whole, or not at all. Nothing else is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos_acts import Act, event_ids, keys_of, row_ids, span_ids, text_of, trace_id
from chaos_journal import History

Contents = Mapping[str, Sequence[Any]]
"""What was read: `rows` and `keyed` as (id, turn, text), `spans` as (trace id, span id), `builds` as (index, event id)."""


@dataclass
class Findings:
    """What is wrong, by kind, each with a sentence; empty if all is well."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    erased_back: list[str] = field(default_factory=list)

    def all(self) -> dict[str, list[str]]:
        return {kind: found for kind, found in vars(self).items() if found}


def compare(histories: Iterable[History], contents: Contents) -> Findings:
    """Compare what was read with what the clients did."""
    histories = list(histories)
    findings = Findings()
    _compare_batches(findings, histories, "append", row_ids, [row[0] for row in contents["rows"]])
    _compare_batches(findings, histories, "spans", _spans_of, [tuple(row) for row in contents["spans"]])
    _compare_batches(findings, histories, "build", event_ids, [event for _, event in contents["builds"]])
    _compare_texts(findings, contents["rows"])
    _compare_texts(findings, contents["keyed"])
    _compare_groups(findings, histories, contents["keyed"])
    _compare_indexes(findings, histories, contents["builds"])
    for history in histories:
        findings.torn.extend(f"{history.client}: {text}" for text in history.torn)
    return findings


def _spans_of(act: Act) -> list[tuple[str, str]]:
    return [(trace_id(act).hex(), span_id.hex()) for span_id in span_ids(act)]


def _compare_batches(
    findings: Findings, histories: Sequence[History], kind: str, names_of: Any, found: Sequence[Any]
) -> None:
    """Compare batches of rows with new names, in no order."""
    counts = Counter(found)
    findings.doubled.extend(f"{kind}: {name} is there {count} times" for name, count in counts.items() if count > 1)
    for history in histories:
        for act in history.acts.values():
            if act.kind != kind:
                continue
            names = names_of(act)
            there = sum(name in counts for name in names)
            for name in names:
                counts.pop(name, None)
            if act.turn in history.acknowledged and there < len(names):
                findings.lost.append(f"{kind} {act.batch_id}: {there} of {len(names)} acknowledged rows are there")
            elif 0 < there < len(names):
                findings.torn.append(f"{kind} {act.batch_id}: {there} of {len(names)} rows are there")
    findings.wrong.extend(f"{kind}: nobody wrote {name}" for name in counts)


def _compare_texts(findings: Findings, rows: Iterable[Sequence[Any]]) -> None:
    findings.wrong.extend(
        f"{name} of turn {turn} has the text {text}" for name, turn, text in rows if text != text_of(name, turn)
    )


def _compare_groups(findings: Findings, histories: Sequence[History], rows: Iterable[Sequence[Any]]) -> None:
    """Compare the groups of keys, each of which its client changed in the order of its turns."""
    turns: dict[str, int] = {}
    for name, turn, _ in rows:
        if name in turns:
            findings.doubled.append(f"key {name} is there twice")
        turns[name] = turn
    for history in histories:
        for group, allowed in allowed_turns(history).items():
            there = [turns.pop(name, None) for name in keys_of(group)]
            if len(set(there)) > 1:
                findings.torn.append(f"{group} has rows of the turns {there}")
            elif there[0] not in allowed:
                findings.lost.append(f"{group} is at turn {there[0]}, allowed are {sorted(allowed, key=str)}")
    findings.wrong.extend(f"nobody wrote the key {name}" for name in turns)


def allowed_turns(history: History) -> dict[str, set[int | None]]:
    """Return the turns at which each group may be, None if it may be absent.

    Turns of a group come one after the other: one in doubt is repeated until it is acknowledged before the next begins.
    """
    allowed: dict[str, set[int | None]] = {}
    for turn, act in sorted(history.acts.items()):
        if not act.group:
            continue
        state = turn if act.kind == "upsert" else None
        before = allowed.get(act.group, {None})
        allowed[act.group] = {state} if turn in history.acknowledged else before | {state}
    return allowed


def erased_groups(histories: Iterable[History]) -> set[str]:
    """Return the groups whose erasure was acknowledged."""
    return {
        act.group
        for history in histories
        for act in history.acts.values()
        if act.kind == "erase" and act.turn in history.acknowledged
    }


def _compare_indexes(findings: Findings, histories: Sequence[History], builds: Sequence[Any]) -> None:
    indexes = {event: index for index, event in builds}
    if sorted(indexes.values()) != list(range(1, len(indexes) + 1)):
        present = set(indexes.values())
        gaps = [index for index in range(1, max(present, default=0) + 1) if index not in present]
        findings.wrong.append(f"{len(indexes)} build events have gaps in their indexes at {gaps[:5]}")
    for history in histories:
        for turn, answer in history.acknowledged.items():
            if history.acts[turn].kind != "build":
                continue
            for event, index in zip(event_ids(history.acts[turn]), answer["indexes"], strict=True):
                if indexes.get(event, index) != index:
                    findings.wrong.append(f"{event} was acknowledged as {index} and is {indexes[event]}")
