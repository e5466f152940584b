"""The decisions of a chaos run, all derived from its seed: how each life of a client goes, and what happens to the server."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from crannog.storage import failpoints

# Beyond these a documented window ends: a batch id is kept for a day, files of unfinished jobs too.
_LONGEST_CLOCK_ERROR_S = 6 * 3600.0
_STORAGE_FAULTS = {"fail": 0.01, "late": 0.01, "slow": 0.02}
_MOST_HITS = {"stage": 30, "pack": 2, "rewrite": 3}


def life_of(seed: str, client: str, number: int) -> dict[str, Any]:
    """Return how one life of a client goes: where or when it ends, and what goes wrong before."""
    chance = random.Random(f"{seed}/life/{client}/{number}")
    plan: dict[str, Any] = {"seed": seed, "client": client, "life": number, "races": chance.random() < 0.5}
    plan["folds_first"] = chance.random() < 0.25
    at_failpoint = chance.random() < 0.45
    name = chance.choice(failpoints.ALL)
    hit = chance.randint(1, _MOST_HITS.get(name.partition(".")[0], 1))
    plan["kill_after_s"] = chance.uniform(0.03, 0.5)
    if at_failpoint:
        plan.update(failpoint=name, hit=hit, kill_after_s=1.5)
    trouble = chance.random()
    if trouble < 0.12:
        plan["storage"] = _STORAGE_FAULTS
    elif trouble < 0.24:
        plan["clock"] = {
            "offset_s": chance.uniform(-_LONGEST_CLOCK_ERROR_S, _LONGEST_CLOCK_ERROR_S),
            "jump_after_s": chance.uniform(0.0, 0.5),
            "jump_s": chance.uniform(-_LONGEST_CLOCK_ERROR_S, _LONGEST_CLOCK_ERROR_S) / 2,
        }
    elif trouble < 0.34:
        plan["stop_after_s"] = chance.uniform(0.03, 0.4)
        plan["stopped_s"] = chance.uniform(0.1, 1.0)
    elif trouble < 0.44 and not at_failpoint:
        plan.update(pause_at=name, hit=hit, stopped_s=chance.uniform(0.2, 1.2), kill_after_s=1.5)
    return plan


def abandons(seed: str, client: str, turn: int) -> bool:
    """Tell whether the client never repeats an append, spans or events that were in doubt."""
    return random.Random(f"{seed}/abandon/{client}/{turn}").random() < 0.3


@dataclass(frozen=True)
class Event:
    """Something that happens to all at a number of kills."""

    at_kill: int
    kind: str
    seconds: float
    server: dict[str, Any]


def events_of(seed: str, kills: int, *, every: int, kinds: list[str]) -> list[Event]:
    """Return what happens to the server and to the disk during `kills` kills; `server` is the plan of the next server."""
    chance = random.Random(f"{seed}/events")
    found = []
    for at_kill in range(every // 2, kills, every):
        server: dict[str, Any] = {"seed": f"{seed}/server/{at_kill}"}
        trouble = chance.random()
        if trouble < 0.3:
            server.update(failpoint=chance.choice(failpoints.ALL), hit=chance.randint(1, 6))
        elif trouble < 0.5:
            server["storage"] = _STORAGE_FAULTS
        elif trouble < 0.65:
            server["clock"] = {"offset_s": chance.uniform(-_LONGEST_CLOCK_ERROR_S, _LONGEST_CLOCK_ERROR_S)}
        found.append(Event(at_kill, chance.choice(kinds), chance.uniform(0.2, 1.5), server))
    return found
