"""Finds the rows that may have an id: the bloom filters of row groups, read once and cached in memory.

DuckDB would open every file for each query. A filter of up to 32 KiB covers 32,768 rows, so a hundred million
spans take 100 MB; beyond the limit a file counts as one that may contain the id.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

_LIMIT_BYTES = 128 * 1024**2
_BLOCK = struct.Struct("<8I")
_LANES = struct.Struct("<2Q")
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_64_BITS = 2**64 - 1
_UNKNOWN = 2**62
Filters = tuple[tuple[bytes, int], ...]
"""The filter and the number of rows of each row group; empty if a file has no filters."""
RowRange = tuple[int, int]
"""Rows of a file by their numbers, from the first up to the second, excluded."""


class BloomFilters:
    """The filters of one column in many files, which never change. Thread-safe."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._filters: dict[str, Filters] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def may_contain(self, paths: Sequence[str], value: bytes) -> tuple[list[str], int | None]:
        """Return the files that may contain an id of 16 bytes, and an upper bound of its rows in them, if known.

        The other files certainly do not contain it.
        """
        key = _hash(value)
        masks = tuple(1 << ((key * salt & 0xFFFFFFFF) >> 27) for salt in _SALTS)
        found, most = [], 0
        for path in paths:
            filters = self._filters_of(path, paths)
            rows = sum(rows for bits, rows in filters if _passes(bits, key, masks))
            if rows or not filters:
                found.append(path)
                most += rows or _UNKNOWN
        return found, most if most < _UNKNOWN else None

    def row_ranges(self, paths: Sequence[str], values: Sequence[bytes]) -> dict[str, list[RowRange] | None]:
        """Return the files that may contain one of these ids of 16 bytes, and the rows among which they are.

        Ranges are in order and do not touch; None if the file has no filters.
        """
        import numpy as np

        keys = np.array([_hash(value) for value in values], np.uint64)
        masks = np.uint32(1) << ((keys.astype(np.uint32)[:, None] * np.array(_SALTS, np.uint32)) >> np.uint32(27))
        high = keys >> np.uint64(32)

        def passes(bits: bytes) -> bool:
            blocks = np.frombuffer(bits, "<u4").reshape(-1, len(_SALTS))
            found = blocks[(high * np.uint64(len(blocks))) >> np.uint64(32)]
            return bool(((found & masks) == masks).all(axis=1).any())

        found: dict[str, list[RowRange] | None] = {}
        for path in paths:
            filters = self._filters_of(path, paths)
            if not filters:
                found[path] = None
            elif ranges := _passing_rows(filters, passes):
                found[path] = ranges
        return found

    def _filters_of(self, path: str, paths: Sequence[str]) -> Filters:
        """Return the filters of a file; empty if it has none, or if there was no room for them."""
        found = self._filters.get(path)
        if found is None:
            found = _read(path, self._column)
            with self._lock:
                self._cache_filters(path, found, paths)
        return found

    def _cache_filters(self, path: str, found: Filters, paths: Sequence[str]) -> None:
        size = _size(found)
        if self._bytes + size > _LIMIT_BYTES:
            wanted = set(paths)  # evict files that were compacted first
            self._filters = {known: filters for known, filters in self._filters.items() if known in wanted}
            self._bytes = sum(map(_size, self._filters.values()))
        if self._bytes + size > _LIMIT_BYTES:
            found, size = (), 0
        if path not in self._filters:
            self._filters[path] = found
            self._bytes += size


def _passing_rows(filters: Filters, passes: Callable[[bytes], bool]) -> list[RowRange]:
    """Return the rows of the row groups whose filter passes; neighbours are one range."""
    ranges: list[RowRange] = []
    start = 0
    for bits, rows in filters:
        if passes(bits):
            first = ranges.pop()[0] if ranges and ranges[-1][1] == start else start
            ranges.append((first, start + rows))
        start += rows
    return ranges


def _size(filters: Filters) -> int:
    return sum(len(bits) for bits, _ in filters)


def _passes(bits: bytes, key: int, masks: tuple[int, ...]) -> bool:
    block = ((key >> 32) * (len(bits) // _BLOCK.size)) >> 32
    return all(map(int.__and__, _BLOCK.unpack_from(bits, block * _BLOCK.size), masks))


def _read(path: str, column: str) -> Filters:
    """Read a file's filters, one per row group; errors are left to the file's reader."""
    try:
        with pq.ParquetFile(path) as file, open(path, "rb") as raw:
            metadata = file.metadata
            place = metadata.schema.names.index(column)
            filters = []
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                chunk = group.column(place)
                offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
                if chunk.path_in_schema != column or not offset or not length:
                    return ()
                raw.seek(offset)
                # A header smaller than a block, then the blocks.
                filters.append((raw.read(length)[length % _BLOCK.size :], group.num_rows))
            return tuple(filters)
    except (OSError, ValueError, pa.ArrowException):
        return ()


def _hash(value: bytes) -> int:
    """Return the XXH64 hash of 16 bytes, as Parquet's bloom filters use it."""
    first, second, third, fourth, fifth = _PRIMES
    found = fifth + len(value)
    for lane in _LANES.unpack(value):
        found ^= _rotated(lane * second & _64_BITS, 31) * first & _64_BITS
        found = (_rotated(found, 27) * first + fourth) & _64_BITS
    found = (found ^ found >> 33) * second & _64_BITS
    found = (found ^ found >> 29) * third & _64_BITS
    return found ^ found >> 32


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _64_BITS
