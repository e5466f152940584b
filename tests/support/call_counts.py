"""Counts the calls of named functions inside the package that one operation makes, and the modules it passes through."""

from __future__ import annotations

import dis
import inspect
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import crannog

_PACKAGE = f"{Path(crannog.__file__).parent}/"
# Comprehensions, generator expressions and lambdas are parts of the function that holds them.
_UNNAMED = "<"


class CallCount(NamedTuple):
    """How many named functions of the package were called, and in how many of its modules they are."""

    calls: int
    modules: int


def least(counts: Iterable[CallCount]) -> CallCount:
    """Return the fewest calls and the fewest modules: what a server does beside an act, now and then, does not count."""
    found = list(counts)
    return CallCount(min(count.calls for count in found), min(count.modules for count in found))


def counted_calls(act: Callable[[], object], *, all_threads: bool = False) -> CallCount:
    """Run `act` and count the calls it makes inside the package.

    Run it a few times before: what is loaded or opened once does not count. `all_threads` also counts threads that
    start during the act.
    """
    found = calls_by_function(act, all_threads=all_threads)
    return CallCount(sum(found.values()), len({module for module, _ in found}))


def calls_by_function(act: Callable[[], object], *, all_threads: bool = False) -> Counter[tuple[str, str]]:
    """Run `act` and return how often each function of the package was called, by module path and qualified name."""
    found: Counter[tuple[str, str]] = Counter()
    note = _noting(found)
    if all_threads:
        threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        if all_threads:
            threading.setprofile(None)
    return found


@contextmanager
def counting_new_threads() -> Iterator[Callable[[Callable[[], object]], CallCount]]:
    """Yield what counts the calls during an act in the threads that start in the block: those of a server, not of its client."""
    found: Counter[tuple[str, str]] = Counter()

    def counted(act: Callable[[], object]) -> CallCount:
        found.clear()
        act()
        time.sleep(0.05)  # what a server records after its response counts too
        return CallCount(sum(found.values()), len({module for module, _ in found}))

    threading.setprofile(_noting(found))
    try:
        yield counted
    finally:
        threading.setprofile(None)


def _noting(found: Counter[tuple[str, str]]) -> Callable[[FrameType, str, object], None]:
    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_PACKAGE) or code.co_name.startswith(_UNNAMED):
            return
        if frame.f_lasti <= _start_of(code):
            found[code.co_filename.removeprefix(_PACKAGE), code.co_qualname] += 1

    return note


@cache
def _start_of(code: CodeType) -> int:
    """Return where a function starts: a generator that is resumed goes on behind it, and is no other call."""
    if not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return len(code.co_code)
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")
