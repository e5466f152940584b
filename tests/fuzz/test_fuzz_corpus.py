"""Replay what the fuzzer has found worth keeping, and the inputs it starts from: only errors of Crannog come out, in time."""

from __future__ import annotations

import time

import pytest

from fuzz_seeds import seeds
from fuzz_targets import CORPUS, TARGETS, corpus

LONGEST_S = 5.0
MOST_BYTES = 400_000


@pytest.mark.parametrize("name", TARGETS)
def test_replayed(name: str) -> None:
    TARGETS[name](b"")  # imports
    for data in [*seeds(name), *corpus(name)]:
        began = time.perf_counter()
        try:
            TARGETS[name](data)
        except BaseException as error:
            raise AssertionError(f"{name} raised {type(error).__name__} for {data[:300]!r}") from error
        took = time.perf_counter() - began
        assert took < LONGEST_S, f"{name} took {took:.1f} s for {data[:300]!r}"


def test_the_corpus_is_small_and_of_known_targets() -> None:
    files = list(CORPUS.iterdir())
    assert {file.stem for file in files} <= set(TARGETS)
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
