"""A trace in the terminal: the tree on the left, a bar for the time of each span on the right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crannog.cli.output import shown as shown_value

if TYPE_CHECKING:
    from rich.text import Text

    from crannog.api.traces import ShownSpan, TraceView

_COLOURS = (
    "cyan",
    "green",
    "yellow",
    "blue",
    "magenta",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_blue",
    "bright_magenta",
)
_ERROR = "bold red"
_DEEPEST = 12
_LEAST_BAR, _LEAST_NAME = 10, 16
_TOOK = 9
CRITICAL, OTHER = "█", "░"
_MEANINGS = {
    CRITICAL: "critical path",
    OTHER: "other",
    "✗": "error",
    "?": "parent missing",
    "↺": "cycle broken here",
    "~": "outside the time range of its parent",
}


def took(nanoseconds: float) -> str:
    """Return a duration in a suitable unit, in at most seven characters."""
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if abs(nanoseconds) < 999.5 * size:  # a value that rounds to a thousand is shown in the next unit
            return f"{nanoseconds / size:.3g} {unit}"
    seconds = nanoseconds / 10**9
    for unit, size in (("s", 1), ("min", 60), ("h", 3_600)):
        if abs(seconds) < 120 * size or unit == "h":
            return f"{seconds / size:,.3g} {unit}" if abs(seconds) < 1_000 * size else f"{seconds / size:,.0f} {unit}"
    raise AssertionError


def bar(start: int, end: int, first: int, last: int, width: int) -> tuple[int, int]:
    """Return the start and length of the bar of a span on a scale of `width` characters; at least one, and within the scale."""
    whole = max(1, last - first)
    left = min(width - 1, max(0, (start - first) * width // whole))
    right = min(width, max(left + 1, -((first - end) * width // whole)))
    return left, right - left


def lines(view: TraceView, width: int, *, details: bool = False) -> Iterator[Text]:
    """Yield the lines of a window, each `width` characters wide; with `details`, the contents of a span follow it."""
    from rich.text import Text

    colours = {service: _COLOURS[place % len(_COLOURS)] for place, service in enumerate(view.services)}
    labels = [_label(shown) for shown in view.spans]
    room = max(_LEAST_NAME, min(max((len(mark + name) for mark, name, _ in labels), default=0), width * 45 // 100))
    wide = max(_LEAST_BAR, width - room - _TOOK - 2)
    for shown, (mark, name, service) in zip(view.spans, labels, strict=True):
        span = shown.span
        colour = colours.get(span.service, "white")
        text = mark + name
        cut = text if len(text) <= room else text[: room - 1] + "…"
        line = Text(cut.ljust(room), style=_ERROR if span.is_error else "", end="")
        at = len(mark) + name.rfind(service) if service else 0
        if service and not span.is_error and at < room:
            line.stylize(colour, at, min(at + len(service), room))
        left, length = bar(span.start_ns, span.end_ns, view.start_ns, view.end_ns, wide)
        sign = CRITICAL if shown.critical_ns else OTHER
        line.append(" " + " " * left)
        line.append(sign * length, style="red" if span.is_error else colour)
        line.append(" " * (wide - left - length) + took(span.duration_ns).rjust(_TOOK + 1))
        yield line
        if details:
            yield from _details(shown, min(len(mark) + 2, room))


def legend(view: TraceView) -> str:
    """Return the legend for the symbols in a window."""
    used = {sign for shown in view.spans for sign in (*_marks(shown), CRITICAL if shown.critical_ns else OTHER)}
    return "   ".join(f"{sign} {meaning}" for sign, meaning in _MEANINGS.items() if sign in used)


def _marks(shown: ShownSpan) -> str:
    span = shown.span
    marks = {"✗": span.is_error, "?": span.orphan, "↺": span.in_cycle, "~": shown.starts_early or shown.ends_late}
    return "".join(mark for mark, holds in marks.items() if holds)


def _label(shown: ShownSpan) -> tuple[str, str, str]:
    """Return the marks and the depth of a span, its name with its service, and the service."""
    span = shown.span
    marks = _marks(shown)
    # Indentation is limited, or deep trees would leave no room for names.
    depth = "  " * span.depth if span.depth <= _DEEPEST else "  " * _DEEPEST + f"+{span.depth - _DEEPEST} "
    name, service = (" ".join(text.split()) for text in (span.name, span.service))
    return depth + (f"{marks} " if marks else ""), f"{name or '(no name)'} {service}", service


def _details(shown: ShownSpan, indent: int) -> Iterator[Text]:
    span, space = shown.span, " " * indent
    facts: list[tuple[str, Any]] = [("span", span.span_id), ("self time", took(shown.self_ns))]
    if span.kind != "UNSPECIFIED":
        facts.append(("kind", span.kind.lower()))
    if span.status != "UNSET":
        facts.append(("status", f"{span.status} {span.status_message}".strip()))
    facts += [("warning", warning) for warning in span.warnings]
    facts += [(name, value) for name in ("model", "input", "output") if (value := getattr(span, name)) is not None]
    facts += list(span.attributes.items())
    facts += [
        (f"at +{took(event.time_ns - span.start_ns)}", _event(event.name, event.attributes)) for event in span.events
    ]
    facts += [("link", f"{link.trace_id} {link.span_id}") for link in span.links]
    from rich.text import Text

    for name, value in facts:
        yield Text.assemble((f"{space}{name}  ", "dim"), shown_value(value))


def _event(name: str, attributes: dict[str, Any]) -> str:
    return f"{name} {json.dumps(attributes, ensure_ascii=False, default=str)}" if attributes else name
