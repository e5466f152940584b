"""Files to load: finds them, detects their format and compression, and reads, counts, hashes and decompresses them."""

from __future__ import annotations

import codecs
import glob
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from crannog.errors import CallerError

STDIN = "-"
FILE_FORMATS = ("csv", "json", "ndjson", "parquet")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_COMPRESSED_ENDINGS = (".gz", ".gzip", ".zst", ".zstd")
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_OTHER_TEXTS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_HEAD_BYTES = 64 * 1024
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name for messages, its path, format and compression ("" for none)."""

    name: str
    path: Path
    form: str
    compression: str
    delimiter: str = ","

    @property
    def size(self) -> int:
        """The size of the file on disk."""
        return self.path.stat().st_size

    @property
    def stamp(self) -> tuple[int, int]:
        """A value that changes when the file is written to."""
        found = self.path.stat()
        return found.st_size, found.st_mtime_ns

    @contextmanager
    def open(self, *, text: bool = False) -> Iterator[Bytes]:
        """Open the uncompressed bytes; with `text`, they end at the first byte that is not UTF-8, and `check` raises the error."""
        try:
            with self.path.open("rb") as file:
                yield Bytes(file, self.compression, self.name, text)
        except OSError as error:
            raise CallerError(f"cannot read {self.name}: {error.strerror or error}") from None
        except pa.ArrowException as error:
            raise CallerError(f"cannot read {self.name}: {' '.join(str(error).split())[:200]}") from None


class Bytes(io.RawIOBase):
    """The decompressed bytes of a file, hashed and counted as they are read."""

    def __init__(self, file: IO[bytes], compression: str, source_name: str, text: bool) -> None:
        self._file = file
        self._from: Any = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression) if compression else file
        self._source_name = source_name
        self._decoder = codecs.getincrementaldecoder("utf-8")() if text else None
        self._hash = hashlib.sha256()
        self._fault = ""
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        if self._fault:
            return b""
        data = bytes(self._from.read() if size is None or size < 0 else self._from.read(size))
        if self._decoder is not None:
            try:
                self._decoder.decode(data, final=not data and size != 0)
            except UnicodeDecodeError as error:
                self._fault = f"{self._source_name} is not UTF-8 text: byte {max(0, self.count + error.start):,} is {error.object[error.start]:#04x}"
                return b""
        self._hash.update(data)
        self.count += len(data)
        return data

    def check(self) -> None:
        """Raise CallerError if the bytes ended at invalid UTF-8."""
        if self._fault:
            raise CallerError(f"{self._fault}; convert it first, for example with iconv -t UTF-8")

    def digest(self) -> str:
        """Read to the end and return the SHA-256 of all bytes."""
        while self.read(1 << 20):
            pass
        self.check()
        return self._hash.hexdigest()

    @property
    def consumed(self) -> int:
        """The position in the file on disk."""
        return self._file.tell()


def find_files(patterns: Sequence[str]) -> list[str]:
    """Return the files of names and patterns, sorted and without duplicates. Raises CallerError if one matches nothing."""
    if not patterns:
        raise CallerError("no file to load; give files, patterns like 'data/*.csv', or - for standard input")
    found: dict[str, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if pattern == STDIN or path.is_file() or (path.exists() and not path.is_dir()):
            found[pattern] = None
        elif path.is_dir():
            raise CallerError(f"{pattern} is a folder; give its files, like {pattern.rstrip('/')}/*.csv")
        elif glob.has_magic(pattern):
            matches = sorted(match for match in glob.glob(pattern, recursive=True) if Path(match).is_file())
            if not matches:
                raise CallerError(f"no file matches {pattern}")
            found.update(dict.fromkeys(matches))
        else:
            raise CallerError(f"there is no file {pattern}")
    return list(found)


@contextmanager
def sources(names: Sequence[str], form: str | None = None, delimiter: str | None = None) -> Iterator[list[Source]]:
    """Open files for loading; standard input is copied to a temporary file, since a load reads twice."""
    if form is not None and form not in FILE_FORMATS:
        raise CallerError(f"the format must be one of {', '.join(FILE_FORMATS)}, got {form!r}")
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise CallerError(f"the delimiter must be one ASCII character other than a quote, got {delimiter!r}")
    with tempfile.TemporaryDirectory(prefix="crannog-load-") as folder:
        yield [_source(name, form, delimiter, Path(folder), number) for number, name in enumerate(names)]


def _source(name: str, form: str | None, delimiter: str | None, folder: Path, number: int) -> Source:
    source_name = "standard input" if name == STDIN else name
    path = Path(name)
    try:
        if name == STDIN or not path.is_file():
            # A pipe can be read only once.
            path = folder / f"{number}"
            with (
                path.open("wb") as copy,
                nullcontext(sys.stdin.buffer) if name == STDIN else Path(name).open("rb") as original,
            ):
                shutil.copyfileobj(original, copy, 1 << 20)
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise CallerError(f"cannot read {source_name}: {error.strerror or error}") from None
    compression = next((codec for magic, codec in _MAGIC if start.startswith(magic)), "")
    source = Source(source_name, path, form or "", compression)
    with source.open() as data:
        head = data.read(_HEAD_BYTES)
    form = form or _form_of(source_name, head)
    if form == "json" and _is_lines(head):
        form = "ndjson"
    if form != "parquet":
        for magic, encoding in _OTHER_TEXTS:
            if head.startswith(magic):
                raise CallerError(
                    f"{source_name} is {encoding} text; convert it to UTF-8 first, for example with iconv"
                )
    if form == "parquet" and compression:
        path = _decompressed(source, folder / f"{number}-unpacked")
        compression = ""
    separator = delimiter or ("\t" if _ending(source_name) == ".tsv" else ",")
    return Source(source_name, path, form, compression, separator)


def _decompressed(source: Source, path: Path) -> Path:
    # Parquet is read from its end.
    with source.open() as data, path.open("wb") as out:
        shutil.copyfileobj(data, out, 1 << 20)
    return path


def _ending(source_name: str) -> str:
    name = source_name.lower()
    for compression in _COMPRESSED_ENDINGS:
        name = name.removesuffix(compression)
    return os.path.splitext(name)[1]  # noqa: PTH122 - a name, which need not be a path


def _form_of(source_name: str, head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    form = _ENDINGS.get(_ending(source_name))
    if form is None and head.removeprefix(BOM).lstrip()[:1] in (b"[", b"{"):
        form = "json"
    if form is None:
        raise CallerError(
            f"cannot detect the format of {source_name}; set the format to {', '.join(FILE_FORMATS[:-1])} or {FILE_FORMATS[-1]}"
        )
    return form


def _is_lines(head: bytes) -> bool:
    """Tell whether the first line of JSON text is a complete object, and so every line."""
    text = head.removeprefix(BOM).lstrip()
    first, newline, _ = text.partition(b"\n")
    if not newline or not first.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False
