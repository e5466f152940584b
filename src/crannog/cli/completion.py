"""Completion in the shell: quick, and in silence whatever happens, because it runs in the middle of somebody's typing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from threading import Timer

_LONGEST_S = 3.0
# bash takes a colon or an equals sign for a word of its own; here neither ever is one.
_TORN = re.compile(r"(?<=\S)[ \n]([:=])[ \n](?=\S)")


def put_words_together(environment: MutableMapping[str, str]) -> None:
    """Make an address one word again, if bash asks what to complete: it tears `http://host:7117` into five."""
    if not environment.get("_CRANNOG_COMPLETE", "").endswith("_bash"):
        return
    with suppress(KeyError, ValueError):
        words, place = environment["COMP_WORDS"], int(environment["COMP_CWORD"])
        between = "\n" if "\n" in words else " "
        before = between.join(words.split(between)[: place + 1])
        environment["COMP_CWORD"] = str(place - 2 * len(_TORN.findall(before)))
        environment["COMP_WORDS"] = _TORN.sub(r"\1", words)


def beginning(incomplete: str, names: Callable[[], list[str]]) -> list[str]:
    """Return the names that begin so; none where they cannot be had, or not soon."""
    with _end_in_time(), suppress(Exception):
        return [name for name in names() if name.startswith(incomplete)]
    return []


@contextmanager
def _end_in_time() -> Iterator[None]:
    """End the process if this takes long: a server that does not answer must not hold up the shell."""
    last_resort = Timer(_LONGEST_S, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()
    try:
        yield
    finally:
        last_resort.cancel()
