"""Which allocator Arrow uses in Crannog's own processes, the server and Spark's tasks; an embedded lake leaves it as it is."""

from __future__ import annotations

import os

import pyarrow as pa


def use_jemalloc() -> None:
    """Let Arrow allocate with jemalloc, if it is built in and nobody chose another allocator.

    Its default, mimalloc, gets fresh pages from the system again and again: reading a Parquet file takes twice the processor
    time, receiving spans a fifth more, and a server a tenth more memory.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        return
    try:
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    except NotImplementedError:
        return  # macOS and Windows
