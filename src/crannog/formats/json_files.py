"""Reads JSON of any size as blocks of rows with their line numbers: NDJSON, an array, or consecutive objects."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from crannog.errors import CallerError
from crannog.formats.input_files import BOM, Bytes, Source

BLOCK_BYTES = 8 * 1024**2
LONGEST_VALUE_BYTES = 256 * 1024**2
_LONGEST_TOKEN = 32
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


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
        kept = [(line, number) for line, number in zip(lines, numbers, strict=True) if line.strip()]
        lines, numbers = [line for line, _ in kept], [number for _, number in kept]
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
