"""CSV made into rows of a table: whole columns at once, single values only where one must be explained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.reports import BadRow
from crannog.api.result import spark_name
from crannog.engine.rows.values import Node
from crannog.formats.csv_rows import CsvBlock, CsvFile, LineNumbers, cell_value
from crannog.formats.input_files import Source
from crannog.formats.json_rows import is_calendar
from crannog.formats.text_columns import TextTypeInference, read_column
from crannog.tables.load_parts import (
    FEW,
    Block,
    Fault,
    Reader,
    Seen,
    Survey,
    Target,
    fit_columns,
    whole_array,
    without,
)


class CsvReader(Reader):
    """One CSV file; a column that the table has no name for is renamed."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._file = CsvFile(source)
        self._name_columns(self._file.names)

    def survey(self, target: Target, seen: Seen) -> Survey:
        survey, kinds = self._start(target)
        nodes, lines, place = target.nodes(), LineNumbers(self._file), 0
        for block, data in self._file.blocks_growing():
            if block is None:
                survey, kinds = self._start(target)
                lines, place = LineNumbers(self._file), 0
                continue
            rows = self._named(block)
            for name, found in kinds.items():
                for chunk in rows.column(name).chunks:
                    found.observe(chunk)
            columns, faults = fit_columns(rows, target, nodes, _fit)
            survey.add_good(columns)
            survey.sure = survey.sure and not any(
                _has_empty(rows.column(name)) for name in kinds if name in target.required
            )
            bad = self._explained(block, faults, place, lines if len(survey.first_bad) < FEW else None)
            survey.rows += rows.num_rows - len(faults)
            survey.add_bad([row for row, _ in bad])
            place += rows.num_rows
            seen(data.consumed, rows.num_rows)
        survey.digest = self._file.digest
        for name in self._names.values():
            survey.columns[name] = kinds[name].type if name in kinds else target.known.field(name).type
        return survey

    def _start(self, target: Target) -> tuple[Survey, dict[str, TextTypeInference]]:
        known = frozenset(target.known.names)
        unknown = [name for name in self._names.values() if name not in known]
        return Survey(renamed=self._renamed), {name: TextTypeInference() for name in unknown}

    def blocks(self, target: Target, seen: Seen) -> Iterator[Block]:
        nodes, lines, place = target.nodes(), LineNumbers(self._file), 0
        with self.source.open(text=True) as data:
            for block in self._file.blocks(data):
                rows = self._named(block)
                columns, faults = fit_columns(rows, target, nodes, _fit)
                whole = without(target.with_all_columns(columns), faults)
                bad = self._explained(block, faults, place, lines)
                place += rows.num_rows
                seen(data.consumed, rows.num_rows)
                yield Block(whole, bad)

    def _named(self, block: CsvBlock) -> pa.Table:
        return block.rows.rename_columns([self._names[name] for name in block.rows.column_names])

    def _explained(
        self, block: CsvBlock, faults: list[Fault], first: int, lines: LineNumbers | None
    ) -> list[tuple[BadRow, object]]:
        """Return the bad rows of a block in the order of the file; without `lines` their places are left out."""
        found: list[tuple[int, str, Any, str, object]] = []
        for fault in faults:
            row = {name: block.rows.column(name)[fault.place].as_py() for name in self._file.names} if lines else None
            found.append((block.numbers.of(first + fault.place), fault.column, fault.value, fault.reason, row))
        for ragged in block.ragged:
            reason = f"the row has {ragged.found} value{'s' * (ragged.found != 1)}, the first line names {ragged.wanted} columns"
            found.append((ragged.record, "", ragged.text, reason, ragged.text))
        found.sort(key=lambda entry: entry[0])
        return [
            (self._bad_row(lines.of(record) if lines else 0, column, value, reason), row)
            for record, column, value, reason, row in found
        ]


def _has_empty(column: pa.ChunkedArray) -> bool:
    """Tell whether a text is empty: in a column that turns out to hold numbers, that is null."""
    return bool(pc.any(pc.equal(column, "")).as_py())


def _fit(column: pa.ChunkedArray, node: Node, target: Target, faults: list[Fault]) -> pa.Array:
    text = whole_array(column)
    values, unread = read_column(text, node.type)
    if unread is None:
        return values
    places = pc.indices_nonzero(unread).to_pylist()
    read = []
    for place, cell in zip(places, text.filter(unread).to_pylist(), strict=True):
        found = cell_value(cell, node.type)
        value, reason = target.exact(found, node)
        if reason:
            if found is cell and not is_calendar(node.type):
                reason = f"this is no {spark_name(node.type)}"
            faults.append(Fault(place, node.name, cell, reason))
        read.append(value)
    if not pa.types.is_nested(node.type):
        return pc.replace_with_mask(values, unread, pa.array(read, node.type))
    whole = values.to_pylist()
    for place, value in zip(places, read, strict=True):
        whole[place] = value
    return pa.array(whole, node.type)
