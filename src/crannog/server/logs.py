"""Log lines of the server: text for people, or one JSON object a line."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import Any

from crannog.settings import Settings

_NAMES = ("crannog", "uvicorn", "uvicorn.error")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        request_id = getattr(record, "request_id", "")
        told: dict[str, Any] = getattr(record, "told", {})
        words = [f"{moment:%H:%M:%S}", record.levelname.lower(), record.getMessage()]
        words += [f"{name}={value}" for name, value in told.items() if value is not None]
        line = " ".join([*words, *([f"[{request_id}]"] if request_id else [])])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := getattr(record, "request_id", ""):
            told["request_id"] = request_id
        told |= getattr(record, "told", {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def set_up(settings: Settings) -> None:
    """Send the server's log lines to standard error, in the form and from the level that the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format == "json" else _Text())
    for name in _NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.setLevel(settings.log_level.upper())
        logger.propagate = name == "uvicorn.error"
    # It would say the address and the query of each request, which may hold what only the audit should.
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
    if settings.log_level != "debug":
        # An answer that was cut off is told by us, with its request id.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
