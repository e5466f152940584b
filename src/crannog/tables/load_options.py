"""How files are to be loaded: checked once, before anything is read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from crannog.api.result import SPARK_NAMES
from crannog.errors import CallerError

MODES = ("append", "upsert")
_DECIMAL = re.compile(r"(?:decimal|numeric)\((\d+)(?:,\s*(\d+))?\)")
_TYPES: dict[str, pa.DataType] = {
    **{name: kind for kind, name in SPARK_NAMES.items() if name != "void"},
    **{str(kind): kind for kind in SPARK_NAMES if not pa.types.is_null(kind)},
    "text": pa.string(),
    "str": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float64": pa.float64(),
    "float32": pa.float32(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "date": pa.date32(),
}


@dataclass(frozen=True)
class LoadOptions:
    """Options of a load, besides its files and its table."""

    create: bool = False
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    mode: str = "append"
    format: str | None = None
    delimiter: str | None = None
    flatten: bool = False
    evolve: bool = False
    ignore_extra: bool = False
    reject: str | None = None
    max_bad: int | None = None
    again: bool = False
    dry_run: bool = False

    @classmethod
    def checked(
        cls,
        *,
        key: Sequence[str] | str | None = (),
        partition_by: Sequence[str] | str = (),
        types: Mapping[str, object] | str | None = None,
        mode: str = "append",
        max_bad: int | None = None,
        **rest: Any,
    ) -> LoadOptions:
        """Return options from what a caller gave; CallerError names what is wrong."""
        unknown = [name for name in rest if name not in cls.__dataclass_fields__]
        if unknown:
            raise CallerError(
                f"a load has no option {', '.join(unknown)}; it has {', '.join(cls.__dataclass_fields__)}"
            )
        if mode not in MODES:
            raise CallerError(f"the mode is append or upsert, got {mode!r}")
        if max_bad is not None and (not isinstance(max_bad, int) or max_bad < 0):
            raise CallerError(f"a number of bad rows is a whole number, 0 or more, got {max_bad!r}")
        return cls(
            key=names_of(key or ()),
            partition_by=names_of(partition_by),
            types=types_of(types or {}),
            mode=mode,
            max_bad=max_bad,
            **rest,
        )

    @property
    def most_bad(self) -> int | None:
        """How many bad rows a load leaves out; None for any number."""
        return self.max_bad if self.max_bad is not None or self.reject else 0

    def fingerprint(self) -> str:
        """Return a hash of what changes which rows a file gives; how the table came to be does not."""
        # Types are the table's: a load that asks for others is refused.
        return hashlib.sha256(json.dumps([self.flatten, self.ignore_extra]).encode()).hexdigest()


def names_of(given: Sequence[str] | str) -> tuple[str, ...]:
    """Return names given as a list, or as one text with commas."""
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(name for part in parts if (name := part.strip()))


def types_of(given: Mapping[str, object] | str) -> dict[str, pa.DataType]:
    """Return types given as a mapping, or as `column=type,…`."""
    if isinstance(given, str):
        parts = [part for part in re.split(r",(?![^(]*\))", given) if part.strip()]
        pairs = [part.partition("=") for part in parts]
        for name, equals, kind in pairs:
            if not (name.strip() and equals and kind.strip()):
                raise CallerError(f"types are given as column=type,column=type, got {given!r}")
        given = {name.strip(): kind for name, _, kind in pairs}
    return {name: kind if isinstance(kind, pa.DataType) else _type(name, str(kind)) for name, kind in given.items()}


def _type(column: str, text: str) -> pa.DataType:
    wanted = text.strip().lower()
    decimal = _DECIMAL.fullmatch(wanted)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if wanted in _TYPES:
        return _TYPES[wanted]
    raise CallerError(
        f"column {column} cannot have type {text.strip()!r}; types are boolean, tinyint, smallint, int, bigint, float, double,"
        " decimal(p,s), string, binary, date and timestamp"
    )
