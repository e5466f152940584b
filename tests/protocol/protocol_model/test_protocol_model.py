"""The protocol holds in every interleaving that was explored, and stops holding when a rule is taken out.

The slow form is bounded by PROTOCOL_MODEL_STATES (per scenario) and PROTOCOL_MODEL_SECONDS (all scenarios together).
Run it with `-s` to see what was explored.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from .checker import explore, walk
from .model import Broken
from .scenarios import COUNTEREXAMPLES, EVERYTHING, FULL, ONE_LISTING_BREAKS, QUICK

MAX_STATES = int(os.environ.get("PROTOCOL_MODEL_STATES", "4000000"))
MAX_SECONDS = float(os.environ.get("PROTOCOL_MODEL_SECONDS", "300"))
SHARE = MAX_SECONDS / (len(FULL) + 4)  # the scenario with everything takes four shares


@pytest.mark.parametrize("name", QUICK)
def test_every_interleaving_of_a_small_scenario_holds(name: str) -> None:
    outcome = explore(QUICK[name])
    print(f"\n{name}: {outcome}")
    assert not outcome.violation, outcome
    assert outcome.exhausted, outcome


@pytest.mark.parametrize("rule", Broken, ids=lambda rule: rule.name.lower())
def test_a_rule_taken_out_yields_a_counterexample(rule: Broken) -> None:
    scenario = COUNTEREXAMPLES[rule]
    outcome = explore(replace(scenario, broken=frozenset({rule})))
    print(f"\n{rule.value}: {outcome}")
    assert outcome.violation, f"{rule.value}: {outcome}"
    # The same scenario holds with the rule, so it is the rule that matters.
    sound = explore(scenario)
    assert sound.exhausted, sound


@pytest.mark.parametrize("kind", ONE_LISTING_BREAKS)
def test_one_listing_of_files_and_packs_is_enough_only_if_originals_stay(kind: str) -> None:
    scenario = replace(ONE_LISTING_BREAKS[kind], broken=frozenset({Broken.ONE_LISTING}))
    assert explore(scenario).violation
    kept = explore(replace(scenario, keeps_originals=True))
    assert kept.exhausted, kept


def test_a_trace_names_every_step() -> None:
    rule = Broken.LOST_TAKES_NEXT
    outcome = explore(replace(COUNTEREXAMPLES[rule], broken=frozenset({rule})))
    assert outcome.trace[-1] == "writer 0 puts batch 1 at 1, answer lost"
    assert outcome.violation.startswith("I2: batch 1 is 2 times")
    assert outcome.depth == len(outcome.trace) + 1


def test_random_walks_find_what_breadth_first_finds() -> None:
    rule = Broken.NO_CONFLICT_CHECK
    assert walk(replace(EVERYTHING, broken=frozenset({rule})), max_steps=2_000_000).violation


@pytest.mark.slow
@pytest.mark.timeout(MAX_SECONDS + 300)
@pytest.mark.parametrize("name", FULL)
def test_every_interleaving_of_a_large_scenario_holds_up_to_the_limit(name: str) -> None:
    outcome = explore(FULL[name], MAX_STATES, SHARE)
    print(f"\n{name}: {outcome}")
    assert not outcome.violation, outcome


@pytest.mark.slow
@pytest.mark.timeout(MAX_SECONDS + 300)
def test_everything_at_once_holds_up_to_the_limit() -> None:
    outcome = explore(EVERYTHING, MAX_STATES, SHARE)
    print(f"\neverything: {outcome}")
    assert not outcome.violation, outcome


@pytest.mark.slow
@pytest.mark.timeout(MAX_SECONDS + 300)
def test_everything_at_once_holds_in_random_walks() -> None:
    outcome = walk(EVERYTHING, max_steps=10 * MAX_STATES, max_seconds=3 * SHARE)
    print(f"\nrandom walks, counted in steps: {outcome}")
    assert not outcome.violation, outcome
