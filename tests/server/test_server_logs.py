"""Log lines: what a client sends cannot make one of its own, nor reach the terminal of whoever reads them."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crannog.server import logs
from servers import serving
from test_server_upgrade import Connection

FORGED = "12:00:00 info request method=DELETE path=/forged status=200 who=admin"
NASTY = [
    f"/x\n{FORGED}",
    f"/x\r{FORGED}",
    "/x\x1b[2K\x1b[1A\x1b]0;title\x07",
    "/x\x9b2J",
    f"/x\u2028{FORGED}",
    f"/x\x85{FORGED}",
    "/x\u202efdp.exe",
    "/x\x7f\b\b",
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_request_makes_a_log_line_of_its_own(tmp_path: Path, form: str) -> None:
    spoofed = '/x status=200 who="admin" [an-id]'
    with serving(tmp_path / "warehouse", log_level="info", log_format=form, otlp=False) as server:
        with server.client() as client:
            for path in [*NASTY, spoofed, "/x" + "y" * 20_000]:
                assert client.get(quote(path), headers={"User-Agent": "a\tb"}).status_code == 404
                client.post(f"/api/v1/tables/{quote(path[1:2_000], safe='')}/rows", json=[{"a": path}])
        with Connection(int(server.url.rpartition(":")[2])) as connection:
            # No client lets such a header through.
            connection.send(
                b"GET /raw%C0%AF%0A%1B HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: a\x9b2J b\r\nUser-Agent: \x80\xff\r\n\r\n"
            )
            assert connection.answer()[0] == 404
        raw = (tmp_path / server._log.name).read_bytes()
    text = raw.decode()
    # A server also logs which folders of killed processes it removed.
    lines = [line for line in text.removesuffix("\n").split("\n") if "which a killed process has left" not in line]
    assert len(lines) == 2 * (len(NASTY) + 2) + 1, text
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 2_000
    if form == "json":
        records = [json.loads(line) for line in lines]
        assert {one["message"] for one in records} == {"request"}
        assert [one["path"] for one in records[: 2 * len(NASTY) : 2]] == NASTY
        return
    for line in lines:
        assert re.match(r"\d\d:\d\d:\d\d info request method=(GET|POST) path=", line), line
        assert len(re.findall(r"(?<!\\\")\bstatus=\d+ elapsed_ms", line)) == 1
    assert rf'path="/x\n{FORGED}" status=404' in lines[0]
    assert r'path="/x status=200 who=\"admin\" [an-id]" status=404' in text


def formatted(formatter: logging.Formatter, message: str, error: Exception | None = None) -> str:
    try:
        if error is not None:
            raise error
        caught = None
    except Exception:
        caught = sys.exc_info()
    return formatter.format(logging.LogRecord("crannog.server", logging.ERROR, "", 0, "%s", (message,), caught))


@given(st.text(alphabet=st.characters()))
def test_messages_and_tracebacks_hold_no_line_of_a_client(text: str) -> None:
    """An exception's message may quote what was sent: its lines are indented, so that none looks like a record."""
    line = formatted(logs._Text(), text)
    assert line.isprintable()
    first, *rest = formatted(logs._Text(), "failed", ValueError(f"{text}\n{FORGED}")).split("\n")
    assert first.endswith(" error failed")
    assert rest
    assert all(each.startswith("    ") and each.isprintable() for each in rest)
    whole = formatted(logs._Json(), text, ValueError(text))
    assert whole.isprintable()
    record = json.loads(whole)
    assert record["message"] == text
    assert "ValueError" in record["exception"]
