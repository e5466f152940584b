"""A few rows as Python values, in columns: how a small change travels from whoever makes it to its staged file.

To turn one event into Arrow and back into a file costs more than the file; Arrow's form is made if somebody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from crannog.protocol.small_parquet import Column, small_file


class FewRows:
    """Rows of known columns; values as `small_file` takes them."""

    def __init__(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> None:
        self.columns = columns
        self.values = values
        self.num_rows = len(values[0])

    @cached_property
    def nbytes(self) -> int:
        """About how much memory the rows take in Arrow's form."""
        return len(repr(self.values))

    @cached_property
    def table(self) -> pa.Table:
        """The rows as Arrow has them."""
        arrays = [pa.array(values, column.kind) for column, values in zip(self.columns, self.values, strict=True)]
        return pa.Table.from_arrays(arrays, names=[column.name for column in self.columns])

    def beside(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> FewRows:
        """Return the rows with more columns."""
        return FewRows([*self.columns, *columns], [*self.values, *values])

    def fits(self, columns: Mapping[str, pa.DataType]) -> bool:
        """Tell whether a table with these columns takes the rows as they are."""
        return all(columns.get(column.name) == column.kind for column in self.columns)

    def file(self, metadata: Mapping[bytes, bytes]) -> bytes:
        """Return the rows as a Parquet file."""
        return small_file(self.columns, self.values, metadata)


def together(rows: Sequence[FewRows], wanted: pa.Schema) -> pa.Table:
    """Return rows one after the other as Arrow has them, in these columns; a column that some have not is null there."""
    columns: dict[str, list[Any]] = {name: [] for name in wanted.names}
    for some in rows:
        given = {column.name: values for column, values in zip(some.columns, some.values, strict=True)}
        nothing = [None] * some.num_rows
        for name, values in columns.items():
            values += given.get(name, nothing)
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), wanted.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=wanted)
