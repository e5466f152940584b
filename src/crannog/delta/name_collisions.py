"""Which names of columns are one name to an engine: all of them compare without case, each in its own way.

Spark's resolver is Java's `equalsIgnoreCase`: each code point in upper case and that in lower case, one to one, so that
`s` and `ſ`, `i` and `ı` and `İ`, `σ` and `ς`, `µ` and `μ` are equal. Where Spark and Delta look for duplicates they
compare whole names in lower case, with the mappings that grow (`İ` becomes an `i` and a dot). DuckDB compares ASCII
without case, which both include. `ß` and `ss`, and one accent written in two ways, are different names to all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def spellings(name: str) -> tuple[str, str]:
    """Return the two forms that engines compare: names that share one of them are one name to some engine."""
    lower = name.lower()
    return lower, lower if name.isascii() else "".join(map(_folded, name))


def _folded(character: str) -> str:
    upper = character.upper()
    if len(upper) > 1:  # Java maps one code point to one: ß stays as it is
        upper = character
    # İ alone has a lower case of two code points; one to one it is i.
    return "i" if upper == "İ" else upper.lower()


def same_columns(fields: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the pairs of columns, fields inside others included, that an engine takes for one."""
    by_lower: dict[str, str] = {}
    by_folded: dict[str, str] = {}
    for field in fields:
        lower, folded = spellings(field.name)
        other = by_lower.get(lower) or by_folded.get(folded)
        if other is not None:
            yield f"{path}{other}", f"{path}{field.name}"
        by_lower.setdefault(lower, field.name)
        by_folded.setdefault(folded, field.name)
        yield from _inside(field.type, path + field.name)


def _inside(type_: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(type_):
        yield from same_columns(type_, f"{path}.")
    elif pa.types.is_map(type_):
        yield from _inside(type_.key_type, f"{path}[key]")
        yield from _inside(type_.item_type, f"{path}[value]")
    elif pa.types.is_list(type_):
        yield from _inside(type_.value_type, f"{path}[]")
