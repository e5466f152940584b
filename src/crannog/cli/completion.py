"""Shell completion: it must be fast and print no errors, because it runs while somebody is typing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from threading import Timer

_LONGEST_S = 3.0
# bash splits words at colons and equals signs; in our arguments neither is a word by itself.
_SPLIT = re.compile(r"(?<=\S)[ \n]([:=])[ \n](?=\S)")


def put_words_together(environment: MutableMapping[str, str]) -> None:
    """Join the words that bash splits: it passes `http://host:7117` to completion as five words."""
    if not environment.get("_CRANNOG_COMPLETE", "").endswith("_bash"):
        return
    with suppress(KeyError, ValueError):
        words, place = environment["COMP_WORDS"], int(environment["COMP_CWORD"])
        between = "\n" if "\n" in words else " "
        before = between.join(words.split(between)[: place + 1])
        environment["COMP_CWORD"] = str(place - 2 * len(_SPLIT.findall(before)))
        environment["COMP_WORDS"] = _SPLIT.sub(r"\1", words)


def beginning(incomplete: str, names: Callable[[], list[str]]) -> list[str]:
    """Return the names with this prefix; an empty list if they cannot be read in time."""
    with _end_in_time(), suppress(Exception):
        return [name for name in names() if name.startswith(incomplete)]
    return []


@contextmanager
def _end_in_time() -> Iterator[None]:
    """End the process after a timeout: a server that does not respond must not block the shell."""
    last_resort = Timer(_LONGEST_S, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()
    try:
        yield
    finally:
        last_resort.cancel()
