"""The explorer: breadth first over all interleavings, every state once, with a trace when something breaks.

A state is one integer: the number of an interned store in the low bits, above it the number of each actor's
interned local state. An actor's steps depend on nothing but those two, so they are computed once per pair and
kept as differences to add; that is what makes pure Python quick enough for millions of states.
"""

from __future__ import annotations

import random
import time
from collections.abc import Hashable
from dataclasses import dataclass

from .actors import Actor, Step
from .bystanders import cleaner, eraser, network, packer, reader
from .committer import committer
from .model import ProtocolError, Scenario, Store, check_store
from .writer import writer

STORE_BITS = 26
LOCAL_BITS = 18

Memo = dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Outcome:
    """What a run saw; `exhausted` means that no state is left, `depth` counts steps from the start."""

    states: int
    depth: int
    seconds: float
    exhausted: bool
    violation: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        end = "exhausted" if self.exhausted else "violated" if self.violation else "cut off"
        rate = self.states / max(self.seconds, 1e-9)
        text = f"{self.states:,} states, depth {self.depth}, {self.seconds:.1f} s ({rate:,.0f}/s), {end}"
        steps = "".join(f"\n  {i:2} {step}" for i, step in enumerate(self.trace, 1))
        return f"{text}{steps}\n  => {self.violation}" if self.violation else text


def actors_of(scenario: Scenario) -> list[Actor]:
    """Everybody who takes part in `scenario`."""
    actors = [writer(scenario, script, f"writer {i}") for i, script in enumerate(scenario.writers)]
    actors += [committer(scenario, kind, n, f"fold {i}") for i, (kind, n) in enumerate(scenario.folds)]
    if scenario.compactions:
        actors.append(committer(scenario, "compact", scenario.compactions, "compaction"))
    actors += [packer(scenario, f"packer {i}") for i in range(scenario.packers)]
    if scenario.erases:
        actors.append(eraser(scenario))
    if scenario.losses:
        actors.append(network())
    if scenario.reader:
        actors.append(reader(scenario))
    return [*actors, cleaner(scenario)]


class _Table:
    """Numbers for hashable values."""

    def __init__(self, bits: int) -> None:
        self.values: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._limit = 1 << bits

    def number(self, value: Hashable) -> int:
        found = self._numbers.setdefault(value, len(self.values))
        if found == len(self.values):
            if found >= self._limit:
                raise OverflowError("too many different values for the bits of a state")
            self.values.append(value)
        return found


class Explorer:
    """All states of one scenario, as far as they were explored."""

    def __init__(self, scenario: Scenario) -> None:
        self._actors = actors_of(scenario)
        self._stores = _Table(STORE_BITS)
        self._locals = [_Table(LOCAL_BITS) for _ in self._actors]
        self._store_mask = (1 << STORE_BITS) - 1
        self._shifts = [STORE_BITS + i * LOCAL_BITS for i in range(len(self._actors))]
        self._start = self._stores.number(scenario.start())
        for actor, table, shift in zip(self._actors, self._locals, self._shifts, strict=True):
            self._start += table.number(actor.start) << shift

    def _steps(self, i: int, key: int) -> list[tuple[Step, int]]:
        """The steps of actor `i`, each with what it adds to the state; raises at the first broken promise."""
        shift = self._shifts[i]
        store_number, local_number = key & self._store_mask, key >> shift & ((1 << LOCAL_BITS) - 1)
        store = self._stores.values[store_number]
        assert isinstance(store, Store)
        steps = []
        for step in self._actors[i].steps(store, self._locals[i].values[local_number]):
            change = self._stores.number(step.store) - store_number
            change += self._locals[i].number(step.local) - local_number << shift
            steps.append((step, change))
        return steps

    def _changes(self, i: int, key: int) -> tuple[int, ...]:
        """What actor `i` may add to the state, with every store it makes checked."""
        steps = self._steps(i, key)
        for step, _ in steps:
            try:
                check_store(step.store)
            except ProtocolError as error:
                raise ProtocolError(f"{error} (after {self._actors[i].name} {step.label})") from None
        return tuple(sorted({change for _, change in steps if change}))

    def _trace(self, parents: dict[int, int], state: int) -> tuple[str, ...]:
        lines: list[str] = []
        while state != self._start:
            parent = parents[state]
            lines.append(self._label(parent, state - parent))
            state = parent
        return tuple(reversed(lines))

    def _label(self, state: int, change: int) -> str:
        for i, actor in enumerate(self._actors):
            for step, difference in self._steps(i, state & self._mask(i)):
                if difference == change:
                    return f"{actor.name} {step.label}"
        raise AssertionError("a step that nobody takes")

    def _mask(self, i: int) -> int:
        return self._store_mask | ((1 << LOCAL_BITS) - 1) << self._shifts[i]

    def _violated(self, parents: dict[int, int], state: int, seconds: float, error: ProtocolError) -> Outcome:
        trace = self._trace(parents, state)
        return Outcome(len(parents), len(trace) + 1, seconds, False, str(error), trace)

    def run(self, max_states: int, max_seconds: float) -> Outcome:
        """Explore breadth first until nothing is left, something breaks, or a limit is reached."""
        began = time.monotonic()
        parents = {self._start: self._start}
        known: list[tuple[int, int, Memo]] = [(i, self._mask(i), {}) for i in range(len(self._actors))]
        level, depth = [self._start], 0
        while level:
            following: list[int] = []
            for count, state in enumerate(level):
                for i, mask, memo in known:
                    changes = memo.get(state & mask)
                    if changes is None:
                        try:
                            changes = memo[state & mask] = self._changes(i, state & mask)
                        except ProtocolError as error:
                            return self._violated(parents, state, time.monotonic() - began, error)
                    for change in changes:
                        after = state + change
                        if after not in parents:
                            parents[after] = state
                            following.append(after)
                if not count & 1023 and (len(parents) >= max_states or time.monotonic() - began > max_seconds):
                    return Outcome(len(parents), depth, time.monotonic() - began, False)
            level, depth = following, depth + 1
        return Outcome(len(parents), depth - 1, time.monotonic() - began, True)

    def walk(self, max_steps: int, max_seconds: float, seed: int, length: int = 150) -> Outcome:
        """Walk at random, again and again from the start: deeper than breadth first gets, but not complete.

        The outcome counts steps, not different states.
        """
        began = time.monotonic()
        chance = random.Random(seed)
        memos: list[Memo] = [{} for _ in self._actors]
        masks = [self._mask(i) for i in range(len(self._actors))]
        steps = deepest = 0
        while steps < max_steps and time.monotonic() - began < max_seconds:
            state, parents = self._start, {self._start: self._start}
            for depth in range(1, length + 1):
                choices: list[int] = []
                for i, mask in enumerate(masks):
                    changes = memos[i].get(state & mask)
                    if changes is None:
                        try:
                            changes = memos[i][state & mask] = self._changes(i, state & mask)
                        except ProtocolError as error:
                            return self._violated(parents, state, time.monotonic() - began, error)
                    choices += changes
                if not choices:
                    break
                after = state + choices[int(chance.random() * len(choices))]
                parents.setdefault(after, state)
                state = after
                steps, deepest = steps + 1, max(deepest, depth)
        return Outcome(steps, deepest, time.monotonic() - began, False)


def explore(scenario: Scenario, max_states: int = 1_000_000, max_seconds: float = 300.0) -> Outcome:
    """Explore `scenario` within the limits."""
    return Explorer(scenario).run(max_states, max_seconds)


def walk(scenario: Scenario, max_steps: int = 1_000_000, max_seconds: float = 300.0, seed: int = 1) -> Outcome:
    """Walk through `scenario` at random within the limits."""
    return Explorer(scenario).walk(max_steps, max_seconds, seed)
