"""The page about Python: every verb with its signature and its promise, every answer with its fields."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cached_property
from typing import Any

import crannog
from crannog.api import lake, producer, reports, result
from crannog.api import table as table_class
from crannog.api import traces as values
from crannog.api.traces import Traces
from crannog.builds import EventLog, results
from reference.markdown import code, document, paragraphs, table

_WIDTH = 100
# What a store of build events provides for the verbs that are listed.
_FOR_STORES = ("call",)
_VERBS: tuple[tuple[str, str, type[Any]], ...] = (
    ("A lake", "lake", lake.Lake),
    ("A table", "table", table_class.Table),
    ("Tables in memory", "lake.cache", lake.Cache),
    ("Traces", "lake.traces", Traces),
    ("Builds", "lake.builds", EventLog),
    ("A producer", "producer", producer.Producer),
    ("The answer to a query", "result", result.Result),
    ("A streamed answer", "stream", result.Stream),
)
_ANSWERS: tuple[type[Any], ...] = (
    reports.WriteReceipt,
    reports.FoldReport,
    reports.CompactReport,
    reports.VacuumReport,
    reports.ExpireReport,
    reports.EvolveReport,
    reports.ErasureReceipt,
    reports.Place,
    result.Explanation,
    result.TableReport,
    reports.LoadReport,
    reports.LoadedFile,
    reports.BadRow,
    reports.Drift,
    *(getattr(values, name) for name in values.__all__ if dataclasses.is_dataclass(getattr(values, name))),
    *(kind for kind in vars(results).values() if isinstance(kind, type) and kind.__module__ == results.__name__),
)


def page() -> str:
    """Return the page."""
    lines = [
        "# Python",
        "",
        "`crannog.connect` gives a lake. Embedded on a folder or a bucket, or connected to a server, it has the same verbs, gives",
        "the same answers and raises the same [errors](errors.md).",
        "",
        *_verb("crannog.connect", crannog.connect),
    ]
    for title, word, kind in _VERBS:
        lines += [f"## {title}", "", *paragraphs(inspect.getdoc(kind) or "")]
        for name, member in vars(kind).items():
            is_property = isinstance(member, (property, cached_property))
            function = member.fget if isinstance(member, property) else member.func if is_property else member
            if (
                name.startswith("_")
                or name in _FOR_STORES
                or not inspect.isfunction(function)
                or not inspect.getdoc(function)
            ):
                continue
            if is_property:
                lines += [f"### {word}.{name}", "", *paragraphs(inspect.getdoc(function) or "")]
            else:
                lines += _verb(f"{word}.{name}", function)
        if dataclasses.is_dataclass(kind):
            lines += _fields(kind)
    lines += ["## What acts answer", "", "Plain values.", ""]
    for kind in _ANSWERS:
        lines += [f"### {kind.__name__}", "", *paragraphs(inspect.getdoc(kind) or ""), *_fields(kind)]
    return document(lines)


def _fields(kind: type[Any]) -> list[str]:
    fields = [
        (code(field.name), code(str(field.type)))
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_")
    ]
    return table(("field", "type"), fields)


def _verb(name: str, function: Any) -> list[str]:
    return [
        f"### {name}",
        "",
        "```py",
        _signature(name.rpartition(".")[2], function),
        "```",
        "",
        *paragraphs(inspect.getdoc(function) or ""),
    ]


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    parts = [_parameter(parameter) for parameter in found.parameters.values() if parameter.name != "self"]
    starred = next(
        (place for place, each in enumerate(found.parameters.values()) if each.kind is inspect.Parameter.KEYWORD_ONLY),
        None,
    )
    if starred is not None:
        parts.insert(starred - ("self" in found.parameters), "*")
    ending = "" if found.return_annotation in (inspect.Signature.empty, "None") else f" -> {found.return_annotation}"
    short = f"{name}({', '.join(parts)}){ending}"
    if len(short) <= _WIDTH:
        return short
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){ending}"])


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    text = parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {parameter.default!r}"
    return text
