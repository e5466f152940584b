"""Reads JSON arrays, objects and NDJSON: whole bodies for a schema, and files of any size in blocks with line numbers.

Arrow reads what it reads without loss; the rest is read value by value, exactly.
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from crannog.errors import CallerError
from crannog.formats.input_files import BOM, Bytes, Source
from crannog.names import first_repeated

BLOCK_BYTES = 8 * 1024**2
_ARROW_BLOCK_BYTES = 1 << 20
LARGEST_ARROW_BLOCK = (1 << 31) - 1
STRADDLES = "straddl"
"""Part of Arrow's error for a row that does not fit into one block."""
LONGEST_VALUE_BYTES = 256 * 1024**2
_LONGEST_TOKEN = 32
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class InexactValue(Exception):
    """Arrow would not read the value exactly."""


class Number(float):
    """A number that keeps its text, for decimal columns."""

    text: str

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def decode_utf8(data: bytes, source_name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CallerError(f"{source_name} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None


def parse_json(text: str, source_name: str, line: int = 1, **how: Any) -> Any:
    try:
        return json.loads(text, **how)
    except json.JSONDecodeError as error:
        raise CallerError(
            f"{source_name} is not valid JSON: {error.msg} in line {line + error.lineno - 1}, column {error.colno}"
        ) from None
    except RecursionError:
        raise CallerError(f"{source_name} is not valid JSON for a table: it is nested too deeply") from None
    except NotJson as error:
        raise CallerError(f"{source_name} is not valid JSON: {error}") from None
    except ValueError as error:
        # An integer with thousands of digits.
        raise CallerError(f"{source_name} is not valid JSON for a table: {error}") from None


class NotJson(ValueError):
    """Something that Python's parser accepts and JSON does not allow."""


def _constant(text: str) -> Any:
    raise NotJson(f"it has {text}, which JSON does not allow; leave the value out, or use null")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotJson(f"an object has the name {first_repeated(name for name, _ in pairs)!r:.100} twice")
    return found


STRICT: dict[str, Any] = {"parse_constant": _constant, "object_pairs_hook": _without_repetition}
"""Arguments with which `parse_json` rejects what two parsers might read differently."""


def exact_value(value: Any, kind: pa.DataType, *, any_as_text: bool = False) -> Any:
    """Convert a value of a JSON document for the engine; one that does not fit is unchanged, for the engine to refuse.

    With `any_as_text`, a text column takes any value as JSON.
    """
    types = pa.types
    if any_as_text and types.is_string(kind) and value is not None and not isinstance(value, str):
        return value.text if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Number):
        return Decimal(value.text) if types.is_decimal(kind) else float(value)
    if types.is_binary(kind) and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:  # also for characters beyond ASCII
            return value
    if types.is_struct(kind) and isinstance(value, dict):
        inner = {field.name: field.type for field in kind}
        return {
            name: exact_value(part, inner[name], any_as_text=any_as_text) if name in inner else part
            for name, part in value.items()
        }
    if types.is_map(kind) and isinstance(value, dict):
        return {name: exact_value(part, kind.item_type, any_as_text=any_as_text) for name, part in value.items()}
    if types.is_list(kind) and isinstance(value, list):
        return [exact_value(part, kind.value_type, any_as_text=any_as_text) for part in value]
    return value


def contains_type(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is, or contains, one of the wanted types."""
    return wanted(kind) or any(contains_type(kind.field(place).type, wanted) for place in range(kind.num_fields))


def is_scalar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_calendar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def check_numbers(column: pa.ChunkedArray) -> None:
    """Raise InexactValue if a number may have lost digits as a float."""
    if pa.types.is_floating(column.type):
        exact_below = float(1 << (24 if column.type == pa.float32() else 53))
        largest = pc.max(pc.abs(column)).as_py()
        if largest is not None and not largest < exact_below:
            raise InexactValue


def parse_json_rows(data: bytes, schema: pa.Schema, source_name: str, *, strict: bool = False) -> pa.Table | list[Any]:
    text = decode_utf8(data, source_name)
    if not text.strip():
        return []
    if text.lstrip().startswith("["):
        return _exact_rows(parse_json(text, source_name, **_json_reader(schema, strict)), schema)
    try:
        return _exact_rows([json.loads(text, **_json_reader(schema, strict))], schema)
    except (ValueError, RecursionError):
        return parse_ndjson_rows(data, schema, source_name, strict=strict)


def parse_ndjson_rows(
    data: bytes, schema: pa.Schema, source_name: str, *, strict: bool = False
) -> pa.Table | list[Any]:
    try:
        return _lines_by_arrow(data, schema)
    except (InexactValue, pa.ArrowException):
        pass
    how = _json_reader(schema, strict)
    # Only \n ends a line of NDJSON; splitlines would also split at characters that a string may contain.
    lines = decode_utf8(data, source_name).split("\n")
    return _exact_rows(
        [parse_json(line, source_name, number, **how) for number, line in enumerate(lines, 1) if line.strip()], schema
    )


def _json_reader(schema: pa.Schema, strict: bool) -> dict[str, Any]:
    exactly = {"parse_float": Number} if any(contains_type(field.type, pa.types.is_decimal) for field in schema) else {}
    return {**exactly, **STRICT} if strict else exactly


def _exact_rows(rows: Any, schema: pa.Schema) -> list[Any]:
    if any(contains_type(field.type, kind) for field in schema for kind in (pa.types.is_decimal, pa.types.is_binary)):
        whole = pa.struct(list(schema))
        return [exact_value(row, whole) for row in rows]
    return list(rows)


def _lines_by_arrow(data: bytes, schema: pa.Schema) -> pa.Table:
    types = pa.types
    if not all(types.is_string(f.type) or is_scalar(f.type) or is_calendar(f.type) for f in schema):
        raise InexactValue
    read_as = pa.schema([pa.field(f.name, pa.string() if is_calendar(f.type) else f.type) for f in schema])
    read = read_json(data, read_as, "error")
    columns = []
    for field in schema:
        column = read.column(field.name)
        check_numbers(column)
        if is_calendar(field.type):
            # Without a time zone, or only a date: the engine knows what that means, Arrow would guess.
            if types.is_timestamp(field.type) and pc.min(pc.binary_length(column)).as_py() in range(11):
                raise InexactValue
            column = pc.cast(column, field.type)
        columns.append(column)
    return pa.table(columns, names=read.column_names)


def read_json(data: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
    """Read lines of JSON with Arrow."""
    options = arrow_json.ParseOptions(
        explicit_schema=schema if len(schema) else None, unexpected_field_behavior=unexpected
    )
    try:
        return arrow_json.read_json(io.BytesIO(data), arrow_json.ReadOptions(block_size=_ARROW_BLOCK_BYTES), options)
    except pa.ArrowInvalid as error:
        if STRADDLES not in str(error):
            raise
    size = min(len(data) + 1, LARGEST_ARROW_BLOCK)
    return arrow_json.read_json(io.BytesIO(data), arrow_json.ReadOptions(block_size=size), options)


@dataclass(slots=True)
class JsonBlock:
    """Rows as lines of JSON, none empty, and the line of the file each starts on."""

    lines: list[bytes]
    numbers: list[int] | range


def blocks_of_lines(data: Bytes, source: Source) -> Iterator[JsonBlock]:
    """Yield the lines of NDJSON. Only \\n ends a line: a string may contain other line separators."""
    number, left, first = 1, b"", True
    while chunk := data.read(BLOCK_BYTES):
        chunk = left + chunk
        if first:
            chunk, first = chunk.removeprefix(BOM), False
        whole, newline, left = chunk.rpartition(b"\n")
        if not newline:
            _check_length(len(left), source, number)
            continue
        yield from _block(whole.split(b"\n"), number)
        number += whole.count(b"\n") + 1
    if left.strip():
        yield from _block([left], number)


def _block(lines: list[bytes], first: int) -> Iterator[JsonBlock]:
    numbers: list[int] | range = range(first, first + len(lines))
    if not all(map(bytes.strip, lines)):
        filled = [(line, number) for line, number in zip(lines, numbers, strict=True) if line.strip()]
        lines, numbers = [line for line, _ in filled], [number for _, number in filled]
    if lines:
        yield JsonBlock(lines, numbers)


def _check_length(size: int, source: Source, line: int) -> None:
    if size > LONGEST_VALUE_BYTES:
        raise CallerError(f"{source.name}: the row in line {line} is longer than {LONGEST_VALUE_BYTES // 1024**2} MiB")


def blocks_of_values(data: Bytes, source: Source) -> Iterator[JsonBlock]:
    """Yield the elements of an array, or consecutive values. Raises CallerError with the line of an error."""
    yield from _Values(data, source).blocks()


class _Values:
    """Splits JSON text into its rows, with no more in memory than a block and the longest row."""

    def __init__(self, data: Bytes, source: Source) -> None:
        self._data, self._source = data, source
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._line = "", 0, 1
        self._ended = False

    def blocks(self) -> Iterator[JsonBlock]:
        self._more()
        self._text = self._text.removeprefix("\ufeff")
        is_array = self._next() == "["
        self._at += is_array
        lines: list[bytes] = []
        numbers: list[int] = []
        size = 0
        while (start := self._next()) and not (is_array and start == "]"):
            line, text = self._value()
            # A line break outside strings has no meaning, and inside them JSON has none.
            lines.append(text.replace("\n", " ").replace("\r", " ").encode("utf-8", "surrogatepass"))
            numbers.append(line)
            size += len(text)
            if size >= BLOCK_BYTES:
                yield JsonBlock(lines, numbers)
                lines, numbers, size = [], [], 0
            if is_array:
                self._comma()
        if is_array:
            if not start:
                raise self._error("the array does not end")
            self._at += 1
            if self._next():
                raise self._error("there is more after the array")
        if lines:
            yield JsonBlock(lines, numbers)

    def _more(self) -> bool:
        """Read more; return False at the end."""
        if self._ended:
            return False
        data = self._data.read(BLOCK_BYTES)
        self._ended = not data
        try:
            text = self._decode.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise CallerError(
                f"{self._source.name} is not UTF-8 text: byte {error.object[error.start]:#04x} after line {self._line}"
            ) from None
        self._line += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :] + text, 0
        return True

    def _next(self) -> str:
        """Skip whitespace and return the next character, or an empty string at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            end = match.end() if match else self._at
            self._line += self._text.count("\n", self._at, end)
            self._text, self._at = (self._text, end) if end < len(self._text) else ("", 0)
            if self._text:
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> tuple[int, str]:
        line = self._line
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
                # A number at the end of the buffer may continue.
                if end < len(self._text) or self._ended:
                    break
                fault = None
            except json.JSONDecodeError as error:
                fault = error
            except RecursionError:
                raise self._error("it is nested too deeply") from None
            except ValueError as error:
                raise self._error(str(error)) from None  # an integer with thousands of digits
            _check_length(len(self._text) - self._at, self._source, line)
            if fault is not None and not self._may_be_cut(fault):
                raise self._error(fault.msg, fault.pos)
            if not self._more_of_value() and fault is not None:
                raise self._error(fault.msg, fault.pos)
        text = self._text[self._at : end]
        self._line += text.count("\n")
        self._at = end
        return line, text

    def _may_be_cut(self, fault: json.JSONDecodeError) -> bool:
        """Tell whether an error may only mean that the rest of the value was not read yet."""
        return fault.pos > len(self._text) - _LONGEST_TOKEN or fault.msg.startswith("Unterminated string")

    def _more_of_value(self) -> bool:
        self._text, self._at = self._text[self._at :], 0
        return self._more()

    def _comma(self) -> None:
        following = self._next()
        if following == ",":
            self._at += 1
            if self._next() == "]":
                raise self._error("there is a comma before the end of the array")
        elif following not in ("]", ""):
            raise self._error("there is no comma between two rows")

    def _error(self, why: str, place: int | None = None) -> CallerError:
        line = self._line + (self._text.count("\n", self._at, place) if place is not None else 0)
        return CallerError(f"{self._source.name} is not valid JSON: {why} in line {line}")
