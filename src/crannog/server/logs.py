"""Log lines of the server: text, or one JSON object per line.

What clients send (paths, names, messages) cannot forge a line or control a terminal: characters that are not printable are
escaped, values with spaces or quotes are quoted, and tracebacks are indented.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
from typing import Any

from crannog.settings import Settings

_NAMES = ("crannog", "uvicorn", "uvicorn.error")
_PLAIN_VALUE = re.compile(r'[^\s"=\[\]\\]+')
_INDENT = "    "


def escaped(text: str) -> str:
    """Return a text with escapes for all characters that are not printable: line ends, controls, bidi marks, surrogates."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _value(value: Any) -> str:
    """Return a value for `name=value`, quoted where it could be read as more than one."""
    text = str(value)
    if _PLAIN_VALUE.fullmatch(text):
        return escaped(text)
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(quoted)}"'


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        request_id = getattr(record, "request_id", "")
        fields: dict[str, Any] = getattr(record, "fields", {})
        words = [f"{moment:%H:%M:%S}", record.levelname.lower(), escaped(record.getMessage())]
        words += [f"{name}={_value(value)}" for name, value in fields.items() if value is not None]
        line = " ".join([*words, *([f"[{escaped(request_id)}]"] if request_id else [])])
        if not record.exc_info:
            return line
        traceback = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(_INDENT + escaped(each) for each in traceback)])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := getattr(record, "request_id", ""):
            fields["request_id"] = request_id
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        text = json.dumps(fields, ensure_ascii=False, default=str)
        # JSON escapes line ends and ESC, but neither C1 controls nor surrogates, which can only be inside its strings.
        return (
            text
            if text.isprintable()
            else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
        )


def set_up(settings: Settings) -> None:
    """Send the server's log lines to standard error, in the format and from the level of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format == "json" else _Text())
    for name in _NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.setLevel(settings.log_level.upper())
        logger.propagate = name == "uvicorn.error"
    # It would log the query string of each request, which may have values that belong in the audit only.
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
    if settings.log_level != "debug":
        # Responses that break off are logged by the middleware, with their request ids.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
