"""Finds column names that an engine treats as equal: all engines ignore case, each in its own way.

Spark's resolver uses Java's `equalsIgnoreCase`: it maps each code point to upper case and then to lower case, one to
one, so that `s` and `ſ`, `i` and `ı` and `İ`, `σ` and `ς`, `µ` and `μ` are equal. When Spark and Delta check for
duplicates, they compare whole names in lower case, with the mappings that grow (`İ` becomes an `i` and a dot). DuckDB
ignores the case of ASCII letters, which both include. `ß` and `ss`, and two encodings of one accent, differ everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def comparison_forms(name: str) -> tuple[str, str]:
    """Return the two forms that engines compare: names that share one of them are equal to some engine."""
    lower = name.lower()
    return lower, lower if name.isascii() else "".join(map(_case_folded, name))


def _case_folded(character: str) -> str:
    upper = character.upper()
    if len(upper) > 1:  # Java maps one code point to one: ß is unchanged
        upper = character
    # İ alone has a lower case of two code points; one to one it is i.
    return "i" if upper == "İ" else upper.lower()


def colliding_columns(fields: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the pairs of columns, nested fields included, whose names an engine treats as equal."""
    by_lower: dict[str, str] = {}
    by_folded: dict[str, str] = {}
    for field in fields:
        lower, folded = comparison_forms(field.name)
        other = by_lower.get(lower) or by_folded.get(folded)
        if other is not None:
            yield f"{path}{other}", f"{path}{field.name}"
        by_lower.setdefault(lower, field.name)
        by_folded.setdefault(folded, field.name)
        yield from _nested_collisions(field.type, path + field.name)


def _nested_collisions(type_: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(type_):
        yield from colliding_columns(type_, f"{path}.")
    elif pa.types.is_map(type_):
        yield from _nested_collisions(type_.key_type, f"{path}[key]")
        yield from _nested_collisions(type_.item_type, f"{path}[value]")
    elif pa.types.is_list(type_):
        yield from _nested_collisions(type_.value_type, f"{path}[]")
