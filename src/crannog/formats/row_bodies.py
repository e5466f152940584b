"""Bodies of requests and input: decompressed within a limit, and parsed as rows, keys and documents for the engine.

Arrow reads whole columns where that gives exactly the same as reading value by value. Otherwise, and whenever
Arrow rejects something, values are read one by one: the engine then reports the row, the column and the value.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from crannog.errors import CallerError, TooLarge, needed_for
from crannog.formats.csv_rows import parse_csv_rows
from crannog.formats.json_rows import (
    STRICT,
    Number,
    decode_utf8,
    exact_value,
    parse_json,
    parse_json_rows,
    parse_ndjson_rows,
)
from crannog.formats.json_values import to_plain_json
from crannog.formats.row_limits import JsonLimits, RowLimit, check_csv, check_lines

ENCODINGS = ("gzip", "x-gzip", "deflate", "zstd")
UNCOMPRESSED = ("", "identity")

_SMALL_BODY = 1 << 16
_OUTPUT_BYTES = 1 << 20
# In zstd a block of 128 KiB can take four bytes: small input chunks bound the output of each.
_INPUT_BYTES = 1 << 10
# With larger windows a few bytes could allocate gigabytes; zstd's --long=27 needs 128 MiB.
_MAX_WINDOW = 1 << 27
# A few kilobytes must not take hundreds of megabytes: rows compress to a tenth, seldom to a fiftieth.
_MAX_RATIO = 100
_ANY_RATIO_BYTES = 16 * 1024**2
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
FORMATS = ("json", "ndjson", "csv")
_EMPTY_BATCH = {"json": "[]", "ndjson": "an empty line"}  # CSV has its line of names


def decompressed(data: bytes, encoding: str, max_bytes: int, grows: Callable[[int], None] = lambda size: None) -> bytes:
    """Decompress one of ENCODINGS; `grows` is called with the size of each part before it is kept.

    Raises CallerError if it is damaged or truncated, TooLarge as soon as it exceeds the limit, or grows more than data
    does that is not made for it.
    """
    if not data:
        raise CallerError(f"the body is empty, which is not valid {encoding}; nothing of it was kept")
    steps = _from_zstd(data) if encoding == "zstd" else _from_zlib(data, encoding)
    most = min(max_bytes, max(_ANY_RATIO_BYTES, _MAX_RATIO * len(data)))
    out = io.BytesIO()  # returns its buffer without a copy
    size = 0
    try:
        for step in steps:
            size += len(step)
            if size > most:
                raise _too_large(len(data), most, max_bytes)
            grows(len(step))
            out.write(step)
    except (zlib.error, EOFError, ValueError) as error:
        raise CallerError(
            f"the body of {len(data):,} bytes is not valid {encoding}: {str(error)[:100]}; nothing of it was kept"
        ) from None
    return out.getvalue()


def _too_large(packed: int, most: int, max_bytes: int) -> TooLarge:
    if most == max_bytes:
        return TooLarge(
            f"the decompressed body has more than {max_bytes:,} bytes, which is the maximum; send it in parts"
        )
    return TooLarge(
        f"the decompressed body of {packed:,} bytes has more than {most:,}: beyond {_ANY_RATIO_BYTES:,} bytes it may have"
        f" {_MAX_RATIO} times its size; send it in parts, or not compressed"
    )


def _from_zlib(data: bytes, encoding: str) -> Iterator[bytes]:
    window = 16 + zlib.MAX_WBITS
    if encoding == "deflate":
        # The standard means the zlib format, some clients send raw deflate: the first bytes tell.
        has_header = len(data) > 1 and data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
        window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    while data:
        unpacker = zlib.decompressobj(window)
        while not unpacker.eof:
            step = unpacker.decompress(data, _OUTPUT_BYTES)
            data = unpacker.unconsumed_tail
            if not step and not data and not unpacker.eof:
                raise EOFError("it ends in the middle")
            yield step
        data = unpacker.unused_data  # several compressed streams may follow one another


def _from_zstd(data: bytes) -> Iterator[bytes]:
    with needed_for("zstd"):
        import zstandard

    view, place = memoryview(data), 0
    try:
        while place < len(view):
            unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
            while not unpacker.eof:
                if place >= len(view):
                    raise EOFError("it ends in the middle")
                bite = view[place : place + _INPUT_BYTES]
                place += len(bite)
                yield unpacker.decompress(bite)
            place -= len(unpacker.unused_data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def parse_rows(
    data: bytes,
    form: str,
    schema: pa.Schema,
    source_name: str,
    *,
    strict: bool = False,
    limit: RowLimit | None = None,
) -> pa.Table | list[Any]:
    """Parse rows for a table with these columns. Raises CallerError with `source_name` and what is wrong with it.

    A body that holds more than the limit is refused before it is parsed: Overloaded for its rows, TooLarge for its values.
    `strict` rejects what JSON does not allow though some writers produce it: a repeated name in an object, NaN and
    Infinity. It also rejects an empty body, which is what is left when rows get lost in transit.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if strict and form in _EMPTY_BATCH and not (data.strip() if form == "json" else data):
        raise CallerError(f"{source_name} is empty; a batch without rows is {_EMPTY_BATCH[form]}")
    if limit is not None and len(data) > _SMALL_BODY:
        _check_limits(data, form, schema, source_name, limit)
    match form:
        case "csv":
            try:
                return parse_csv_rows(data, schema, source_name)
            except UnicodeDecodeError:
                decode_utf8(data, source_name)  # raises with the position
                raise
        case "ndjson":
            return parse_ndjson_rows(data, schema, source_name, strict=strict)
        case "json":
            return parse_json_rows(data, schema, source_name, strict=strict)
    raise CallerError(f"the format must be one of {', '.join(FORMATS)}, got {form!r}")


def _check_limits(data: bytes, form: str, schema: pa.Schema, source_name: str, limit: RowLimit) -> None:
    if form == "csv":
        check_csv(data, len(schema), limit, source_name)
        return
    if form == "ndjson":
        check_lines(data, limit)
    JsonLimits.of_rows(schema, limit).check(data, source_name)


def parse_document(data: bytes, source_name: str, *, strict: bool = False) -> Any:
    """Parse one JSON document."""
    return parse_json(
        decode_utf8(data.removeprefix(b"\xef\xbb\xbf"), source_name), source_name, **(STRICT if strict else {})
    )


def parse_keys(texts: Sequence[str], schema: pa.Schema, key: Sequence[str]) -> list[Any]:
    """Parse keys given as arguments: JSON values, plain text where that is not JSON, objects for keys of several columns."""
    return [_parse_key(text, schema, key) for text in texts]


def key_of_texts(texts: Sequence[str], schema: pa.Schema, key: Sequence[str]) -> Any:
    """Parse one key given as text: a value for each column in the order of the key, or one JSON object or array for several.

    A text column takes its text as it is; the engine refuses what does not fit.
    """
    if len(texts) == 1 and len(key) > 1:
        document = parse_document(texts[0].encode("utf-8", "replace"), "the key", strict=True)
        if not isinstance(document, (dict, list)):
            example = json.dumps(dict.fromkeys(key, "…"), ensure_ascii=False)
            raise CallerError(f"the key is {', '.join(key)}; give it as a JSON object like {example}")
        return exact_keys([document], schema, key)[0] if isinstance(document, dict) else document
    kinds = [schema.field(name).type for name in key]
    return [_typed(text, kind) for text, kind in zip(texts, kinds, strict=False)] + list(texts[len(key) :])


def texts_of_key(values: Sequence[Any]) -> list[str]:
    """Return the texts that `key_of_texts` reads as these values."""
    plain = [to_plain_json(value) for value in values]
    return [value if isinstance(value, str) else json.dumps(value) for value in plain]


def _typed(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return int(text) if _WHOLE_NUMBER.fullmatch(text) else text
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text, text)
    return exact_value(text, kind)


def exact_keys(values: Sequence[Any], schema: pa.Schema, key: Sequence[str]) -> list[Any]:
    """Convert keys of a JSON document, bare values or objects, for the engine, which refuses what does not fit."""
    kinds = {name: schema.field(name).type for name in key}
    return [
        {name: exact_value(inner, kinds[name]) if name in kinds else inner for name, inner in value.items()}
        if isinstance(value, dict)
        else exact_value(value, kinds[key[0]])
        if len(key) == 1
        else value
        for value in values
    ]


def _parse_key(text: str, schema: pa.Schema, key: Sequence[str]) -> Any:
    try:
        value = json.loads(text, parse_float=Number)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict) and set(value) == set(key):
        return {name: exact_value(inner, schema.field(name).type) for name, inner in value.items()}
    if len(key) != 1:
        example = json.dumps(dict.fromkeys(key, "…"), ensure_ascii=False)
        raise CallerError(f"the key is {', '.join(key)}; give each key as a JSON object like '{example}', got {text!r}")
    kind = schema.field(key[0]).type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # An id such as 123 or true is text too; only a quoted string is JSON.
        value = value if isinstance(value, str) else text
    return exact_value(value, kind)
