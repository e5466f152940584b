"""Checks of arguments that need neither a table nor a server, so that client and server raise the same errors.

A batch that was already stored is recognized by its batch id, from any sender.
"""

from __future__ import annotations

import ipaddress
import os
import re
import time
import uuid

from crannog.errors import CallerError

ENGINES = ("auto", "hot", "local", "spark")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_if_exists(if_exists: str) -> str:
    if if_exists not in ("error", "ok"):
        raise CallerError(f'if_exists is "error" or "ok", got {if_exists!r}')
    return if_exists


def checked_engine(engine: str) -> str:
    if engine not in ENGINES:
        raise CallerError(f"engine is one of {', '.join(ENGINES)}, got {engine!r}")
    return engine


def checked_query_id(query_id: str | None) -> str:
    """Return the query id, or a new one if none is given."""
    if query_id is None:
        return uuid.uuid4().hex
    if not isinstance(query_id, str) or not 0 < len(query_id) <= 128 or not query_id.isprintable():
        raise CallerError(f"a query id is printable text of 1 to 128 characters, got {str(query_id)[:80]!r}")
    return query_id


def checked_timeout(timeout_s: float | None) -> float | None:
    """Return the time limit of a query in seconds; None means the limit from the settings."""
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= 86_400:
        raise CallerError(f"timeout_s is a number of seconds above 0 and up to 86,400, got {timeout_s!r}")
    return float(timeout_s)


def checked_max_rows(max_rows: int | None) -> int | None:
    """Return the maximum number of rows of a result; None means the number from the settings, which also limit it."""
    if max_rows is not None and (isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 0):
        raise CallerError(f"max_rows is a whole number, 0 or more, got {max_rows!r}")
    return max_rows


def checked_limit(limit: int | None) -> int | None:
    """Return the number of rows to read; None means all."""
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise CallerError(f"a number of rows is a whole number, 0 or more, got {limit!r}")
    if limit is not None and limit >= 2**63:
        raise CallerError(f"a number of rows is at most {2**63 - 1:,}, got {str(limit)[:40]}")
    return limit


_ERASURE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,63}")


def checked_erasure_id(erasure_id: str | None) -> str | None:
    """Return the id of an erasure, under which the receipts of several tables are kept together; None means a new one."""
    if erasure_id in (None, ""):
        return None
    if not isinstance(erasure_id, str) or not _ERASURE_ID.fullmatch(erasure_id):
        raise CallerError(
            f"the id of an erasure has 1 to 64 letters, digits, '.', '_' and '-', got {str(erasure_id)[:80]!r}"
        )
    return erasure_id


_LONGEST = 256


def new_batch_id() -> str:
    """Return a UUIDv7: unique, and later ones sort later."""
    stamp = time.time_ns() // 1_000_000
    value = stamp << 80 | 0x7 << 76 | int.from_bytes(os.urandom(10)) & 0x0FFF_3FFF_FFFF_FFFF_FFFF | 0x8 << 60
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def checked_batch_id(batch_id: str | None) -> str:
    """Return the batch id, or a new one if none is given. Raises CallerError if it is invalid."""
    if batch_id is None:
        return new_batch_id()
    if not isinstance(batch_id, str) or not batch_id or len(batch_id) > _LONGEST:
        raise CallerError(f"a batch id is text of 1 to {_LONGEST} characters, got {str(batch_id)[:80]!r}")
    return batch_id
