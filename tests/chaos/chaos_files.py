"""The files of a warehouse as any program finds them, in a folder or a bucket: no code of Crannog is used here.

`state_of` puts a table together from the open formats alone: the base as delta-rs reads its log, and the staged files as
plain Parquet with `_seq`, `_ord` and `_op`. `TokenSearch` finds names of groups in the bytes of every file, compressed or not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

BLOCKS = (4096, 64)
DELETED = 1
_TOKEN = re.compile(rb"group-[a-z]+[0-9]*-[0-9]+-[0-9]+-")
_ATTEMPTS = 40


class Folder:
    """A warehouse in a folder."""

    options: dict[str, str] | None = None

    def __init__(self, location: str) -> None:
        self._root = Path(location)

    def uri(self, path: str) -> str:
        return str(self._root / path)

    def walk(self, folder: str = "") -> dict[str, tuple[int, int]]:
        """Return the size and time of every file, hidden ones included, by path."""
        found = {}
        for place, _, names in os.walk(self._root / folder):
            for name in names:
                full = Path(place, name)
                try:
                    stat = full.stat()
                except FileNotFoundError:
                    continue
                if full.is_file():
                    found[str(full.relative_to(self._root))] = (stat.st_size, stat.st_mtime_ns)
        return found

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()


class Bucket:
    """A warehouse under a prefix of a bucket."""

    def __init__(self, location: str) -> None:
        import boto3

        self._location = location
        self._bucket, _, self._prefix = location.removeprefix("s3://").partition("/")
        self._client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
        self.options = {"aws_endpoint": os.environ["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}

    def uri(self, path: str) -> str:
        return f"{self._location}/{path}"

    def walk(self, folder: str = "") -> dict[str, tuple[int, int]]:
        found = {}
        prefix = f"{self._prefix}/{folder}"
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            for entry in page.get("Contents", ()):
                changed = int(entry["LastModified"].timestamp() * 1e9) ^ hash(entry["ETag"])
                found[entry["Key"][len(self._prefix) + 1 :]] = (entry["Size"], changed)
        return found

    def read(self, path: str) -> bytes:
        try:
            return bytes(self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{path}")["Body"].read())
        except self._client.exceptions.NoSuchKey as error:
            raise FileNotFoundError(path) from error


Files = Folder | Bucket


def files_at(location: str) -> Files:
    return Bucket(location) if location.startswith("s3://") else Folder(location)


def exists(files: Files, table: str) -> bool:
    return any("/_delta_log/" in path for path in files.walk(table.replace(".", "/")))


def state_of(files: Files, table: str, columns: list[str], key: str | None) -> list[tuple[Any, ...]]:
    """Return the rows of a table, put together without Crannog; tries again if the table changes meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            return _state_of(files, table, columns, key)
        except (FileNotFoundError, _Changed, OSError) as error:
            if attempt == _ATTEMPTS - 1:
                raise AssertionError(f"{table} cannot be read behind the code: {error}") from error
    raise AssertionError("unreachable")


class _Changed(Exception):
    """The table changed while it was read."""


def _head(files: Files, table: str) -> tuple[int, int, list[str]]:
    delta = DeltaTable(files.uri(table.replace(".", "/")), storage_options=files.options)
    folded = delta.transaction_version(str(delta.metadata().id)) or 0
    paths = [f"{table.replace('.', '/')}/{path}" for path in pa.table(delta.get_add_actions())["path"].to_pylist()]
    return delta.version(), folded, paths


def _state_of(files: Files, table: str, columns: list[str], key: str | None) -> list[tuple[Any, ...]]:
    version, folded, paths = _head(files, table)
    rows = [row for path in paths for row in _rows(files.read(path), columns)]
    staged = _staged(files, table, folded, columns)
    if _head(files, table)[:2] != (version, folded):
        raise _Changed(f"version {version} is no longer the newest")
    if key is None:
        return rows + [row for _, _, op, row in staged if op != DELETED]
    place = columns.index(key)
    found = {}
    for row in rows:
        assert row[place] not in found, f"{row[place]} stands twice in the base of {table}"
        found[row[place]] = row
    for _, _, op, row in staged:
        if op == DELETED:
            found.pop(row[place], None)
        else:
            found[row[place]] = row
    return list(found.values())


def _rows(data: bytes, columns: list[str]) -> list[tuple[Any, ...]]:
    read = pq.read_table(pa.BufferReader(data), columns=columns, partitioning=None)
    return list(zip(*(read[name].to_pylist() for name in columns), strict=True))


def _staged(files: Files, table: str, folded: int, columns: list[str]) -> list[tuple[int, int, int, tuple[Any, ...]]]:
    """Return the staged rows after the folded sequence in commit order; a pack covers the files it was made from."""
    stage = {path.rpartition("/")[2]: path for path in files.walk(table.replace(".", "/")) if "/stage/" in path}
    found, sequence = [], folded + 1
    while True:
        packs = [(size, f"pack-{size}-{sequence // size:010}.parquet") for size in BLOCKS]
        size, name = next(((size, name) for size, name in packs if name in stage), (0, f"{sequence:020}.parquet"))
        if name not in stage:
            break
        read = pq.read_table(pa.BufferReader(files.read(stage[name])), partitioning=None)
        wanted = [
            read[column].to_pylist() if column in read.column_names else [None] * read.num_rows for column in columns
        ]
        for seq, order, op, *values in zip(
            *(read[column].to_pylist() for column in ("_seq", "_ord", "_op")), *wanted, strict=True
        ):
            if seq > folded:
                found.append((seq, order, op, tuple(values)))
        sequence = (sequence // size + 1) * size if size else sequence + 1
    later = [name for name in stage if name.split(".")[0].isdigit() and int(name.split(".")[0]) >= sequence]
    if later:
        raise _Changed(f"staged file {sequence} is missing, {min(later)} exists")
    return sorted(found, key=lambda entry: entry[:2])


@dataclass
class TokenSearch:
    """Finds the names of groups in every file; a file that did not change is read once."""

    files: Files
    _known: dict[str, tuple[tuple[int, int], frozenset[str]]] = field(default_factory=dict)

    def everywhere(self) -> dict[str, list[str]]:
        """Return the files that show each group."""
        found: dict[str, list[str]] = {}
        present = self.files.walk()
        for path, stamp in present.items():
            if (known := self._known.get(path)) is None or known[0] != stamp:
                try:
                    known = (stamp, tokens_in(self.files.read(path)))
                except FileNotFoundError:
                    continue
                self._known[path] = known
            for token in known[1]:
                found.setdefault(token, []).append(path)
        self._known = {path: known for path, known in self._known.items() if path in present}
        return found


def tokens_in(data: bytes) -> frozenset[str]:
    """Return the names of groups in a file, also in the compressed pages of Parquet and the batches of Arrow."""
    tokens = set(_TOKEN.findall(data))
    if data[:4] == b"PAR1" or data[:6] == b"ARROW1":
        try:
            tokens.update(_TOKEN.findall(_uncompressed(data)))
        except (pa.ArrowException, OSError):
            pass  # not finished: what is in it was searched as it is
    return frozenset(token.decode() for token in tokens)


def _uncompressed(data: bytes) -> bytes:
    source = pa.BufferReader(data)
    table = pa.ipc.open_file(source).read_all() if data[:6] == b"ARROW1" else pq.read_table(source, partitioning=None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
