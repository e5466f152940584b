"""Faults inside a process of a chaos run: death and pauses at failpoints, a failing storage, a clock that is wrong.

A plan (JSON) says which; clients get theirs when they start, the server in the environment variable CHAOS_PLAN.
"""

from __future__ import annotations

import datetime
import os
import random
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from forcing import FAULTS, ForcedStorage, fault

Note = Callable[..., None]

CHANGES = ("put_if_absent", "replace", "delete", "sync", "rewrite_synced", "make_folder", "touch")


def install(plan: Mapping[str, Any], note: Note) -> None:
    """Prepare the faults of this process that need no warehouse."""
    if (clock := plan.get("clock")) is not None:
        shift_clock(clock["offset_s"], clock.get("jump_after_s"), clock.get("jump_s", 0.0))
    if plan.get("failpoint") or plan.get("pause_at"):
        watch_failpoints(plan, note)


def watch_failpoints(plan: Mapping[str, Any], note: Note) -> None:
    """Kill this process at the n-th time it reaches a failpoint, or stop it there until somebody sends SIGCONT."""
    from crannog.storage import failpoints

    lock = threading.Lock()
    left = {name: plan.get("hit", 1) for name in (plan.get("failpoint"), plan.get("pause_at")) if name}

    def hook(name: str) -> None:
        if name not in left:
            return
        with lock:
            left[name] -= 1
            if left[name] != 0:
                return
            if name == plan.get("failpoint"):
                note(failpoint=name)
                os.kill(os.getpid(), signal.SIGKILL)
            note(failpoint=f"{name} (paused)")
        os.kill(os.getpid(), signal.SIGSTOP)

    failpoints.hook = hook


class UnreliableStorage:
    """A rule of `ForcedStorage`: some calls fail, some are performed but answered by an error, some take long."""

    def __init__(self, seed: str, rates: Mapping[str, float], note: Note) -> None:
        self._chance = random.Random(seed)
        self._rates = rates
        self._note = note
        self._lock = threading.Lock()

    def __call__(self, operation: str, path: str, proceed: Callable[[], Any]) -> Any:
        with self._lock:
            drawn, kind, pause_s = self._chance.random(), self._chance.choice(FAULTS), self._chance.uniform(0.01, 0.3)
        how = self._fault_for(drawn)
        if how is None:
            return proceed()
        self._note(fault=how, operation=operation)
        if how == "slow":
            time.sleep(pause_s)
            return proceed()
        if how == "late" and operation in CHANGES:
            proceed()
            time.sleep(pause_s)
        raise fault(kind, operation, path)

    def _fault_for(self, drawn: float) -> str | None:
        for how, rate in self._rates.items():
            if drawn < rate:
                return how
            drawn -= rate
        return None


def make_unreliable(lake: Any, plan: Mapping[str, Any], note: Note) -> None:
    """Put the faults of the plan's storage on an open lake."""
    if (rates := plan.get("storage")) is None:
        return
    storage = _WithFaults(lake.operations.warehouse.storage)
    storage.calls = _Forgets()  # a process of hours must not remember every call
    storage.rules.append(UnreliableStorage(str(plan["seed"]), rates, note))
    lake.operations.warehouse.storage = storage
    lake.operations.control._storage = storage


class _WithFaults(ForcedStorage):
    """A storage with rules that counts as one of its own kind: some work is only for buckets."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return type(self.inner)


class _Forgets(list[tuple[str, str]]):
    def append(self, _: tuple[str, str]) -> None:
        """Keep nothing."""


def shift_clock(offset_s: float, jump_after_s: float | None, jump_s: float) -> None:
    """Make the clock of this process wrong from now on, and make it jump once more later; monotonic time stays right."""
    true_ns, begun = time.time_ns, time.monotonic()

    def shift_ns() -> int:
        jumped = jump_after_s is not None and time.monotonic() - begun >= jump_after_s
        return int((offset_s + (jump_s if jumped else 0.0)) * 1e9)

    time.time_ns = lambda: true_ns() + shift_ns()  # type: ignore[assignment]
    time.time = lambda: time.time_ns() / 1e9  # type: ignore[assignment]
    _shift_datetimes(shift_ns)


class _LooksLikeDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime.datetime)


def _shift_datetimes(shift_ns: Callable[[], int]) -> None:
    """Give the modules of Crannog that read the clock by `dt.datetime.now` one that is shifted."""

    class Shifted(datetime.datetime, metaclass=_LooksLikeDatetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return datetime.datetime.now(tz) + datetime.timedelta(microseconds=shift_ns() // 1000)

        @classmethod
        def __get_pydantic_core_schema__(cls, _: object, handler: Callable[[type], Any]) -> Any:
            return handler(datetime.datetime)  # types of requests are read when the server starts

    shifted = types.ModuleType("datetime")
    shifted.__dict__.update({**datetime.__dict__, "datetime": Shifted})
    for name, module in list(sys.modules.items()):
        if name.startswith("crannog.") and getattr(module, "dt", None) is datetime:
            module.dt = shifted  # type: ignore[attr-defined]
