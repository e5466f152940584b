"""Where a partition comes from and where it goes: steps along what configs and manifests tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crannog.builds.results import Edge, Lineage
from crannog.errors import CallerError

if TYPE_CHECKING:
    from crannog.builds.log import EventLog


def lineage(log: EventLog, partition_ref: str, direction: str, *, depth: int, limit: int) -> Lineage:
    """Walk breadth first, so that the nearest come first; a ring is walked once; `truncated` if a limit cut it."""
    if direction not in ("upstream", "downstream"):
        raise CallerError(f'direction is "upstream" or "downstream", got {direction!r}')
    upstream = direction == "upstream"
    found: dict[str, None] = {}
    edges: list[Edge] = []
    frontier = [partition_ref]
    for _ in range(depth):
        if not frontier:
            break
        step = log.list_edges(frontier, upstream=upstream)
        frontier = []
        for edge in step:
            if len(edges) >= limit:
                return Lineage(partition_ref, direction, tuple(found), tuple(edges), True)
            edges.append(edge)
            ref = edge.input_ref if upstream else edge.output_ref
            if ref not in found and ref != partition_ref:
                found[ref] = None
                frontier.append(ref)
    return Lineage(partition_ref, direction, tuple(found), tuple(edges), bool(frontier))
