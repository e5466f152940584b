"""Translates exceptions of Spark, Delta and py4j into Crannog's errors: short, without stack traces."""

from __future__ import annotations

import re

import pyarrow as pa

from crannog.errors import CallerError, Cancelled, Conflict, CrannogError, NotFound, SparkLost, Unavailable
from crannog.spark.jvm import was_out_of_memory

_MAX_LENGTH = 400
_MISSING = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "PATH_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
)
# By name: Delta's eight concurrency exceptions are siblings in Python, so catching one does not catch the others.
_LOST_RACE = re.compile(
    r"\b(DeltaConcurrentModification|ConcurrentWrite|MetadataChanged|ProtocolChanged|ConcurrentAppend|ConcurrentDeleteRead"
    r"|ConcurrentDeleteDelete|ConcurrentTransaction)Exception\b"
)
_CANCELLED = re.compile(
    r"\bcancell?ed\b.*\b(job|stage|query)|\b(job|stage|query)\b.*\bcancell?ed\b|OPERATION_CANCELED",
    re.IGNORECASE | re.DOTALL,
)
# A context that is being stopped has already lost parts, and later calls fail on them.
_SHUT_DOWN = re.compile(
    r"SparkContext was shut down|stopped SparkContext|SparkContext has been shutdown|SparkContext\.\w+\(\)\" is null",
    re.IGNORECASE,
)
_WRAPPER = "Exception thrown in awaitResult"
# SQLSTATE classes that blame the statement or its data: cardinality, data, constraint, syntax, limit, raise_error, unsupported.
_CALLERS_FAULT = ("21", "22", "23", "42", "54", "P0", "0A")


# Failures of Spark's own code on a statement that it does not support; a retry would not help.
_UNSUPPORTED = re.compile(
    r"\[INTERNAL_ERROR|java\.lang\.(?:IndexOutOfBounds|ArrayIndexOutOfBounds|StringIndexOutOfBounds|IllegalArgument|IllegalState|NullPointer"
    r"|ClassCast|UnsupportedOperation|Arithmetic|NumberFormat|NegativeArraySize)Exception|scala\.MatchError|java\.util\.NoSuchElementException"
    r"|java\.lang\.StackOverflowError|Could not find \w+#\d+ in"
)


def translated_for_statement(error: BaseException) -> CrannogError:
    """Return the error to raise for a caller's statement; a failure of Spark's code on it is a CallerError."""
    from pyspark.errors import AnalysisException, IllegalArgumentException

    found = translated(error)
    is_of_statement = isinstance(error, (AnalysisException, IllegalArgumentException)) or _UNSUPPORTED.search(
        _details_of(error)[0]
    )
    if isinstance(error, pa.ArrowException):
        return CallerError(
            f"the result has a type that Arrow cannot represent; cast it to another ({shortened(str(error))[:200]})"
        )
    if type(found) is Unavailable and is_of_statement:
        return CallerError(f"Spark cannot run this statement: {str(found).removeprefix('Spark failed: ')}")
    return found


def translated(error: BaseException) -> CrannogError:
    """Return the Crannog error for `error`; a CrannogError is returned unchanged."""
    if isinstance(error, CrannogError):
        return error
    if _connection_lost(error):
        if was_out_of_memory():
            return Unavailable(
                "Spark ran out of memory and is restarted; narrow what it reads at once, or raise spark_memory_mb"
            )
        return SparkLost(
            "Spark's Java process ended during the operation; it restarts on the next use", retry_after_s=1
        )
    message, condition, state = _details_of(error)
    if _SHUT_DOWN.search(message):
        return SparkLost("Spark was stopped during the operation; it restarts on the next use", retry_after_s=1)
    lost_race = _LOST_RACE.search(f"{type(error).__name__} {message}")
    if "StackOverflowError" in message:
        return CallerError(
            "the statement is nested too deep for Spark, or has too many steps one after the other; split it"
        )
    text = shortened(message) or type(error).__name__
    if lost_race:
        return Conflict(f"another writer won: {text}")
    if _CANCELLED.search(message) or condition == "OPERATION_CANCELED":
        return Cancelled("the operation was cancelled")
    if condition.startswith(_MISSING):
        return NotFound(text)
    if _is_callers_fault(error, state):
        return CallerError(text)
    return Unavailable(f"Spark failed: {text}")


def shortened(message: str) -> str:
    """Return the first sentence of a Java message: no class name, error class, state or stack."""
    # An aborted job puts the cause behind its own text, on the line with the task's exception.
    inner = re.search(r"Lost task [^\n]*?\): ([^\n]+)", message)
    text = inner[1] if inner else message
    # The traceback of a task in Python ends with its error.
    if "Python worker" in message and (
        raised := re.findall(r"^\s*(?:\w+\.)*((?:\w+(?:Error|Exception)|Arrow\w+): .+)$", message, re.MULTILINE)
    ):
        text = raised[-1]
    text = next((line.strip() for line in text.splitlines() if line.strip()), "")
    text = re.sub(r"^(?:[a-zA-Z_$][\w$]*\.)+[\w$]*(?:Exception|Error)\b:?\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w{5}.*$", "", text)
    text = re.sub(r"^\[([A-Z0-9_.]+)\]\s*", "", text)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def _connection_lost(error: BaseException) -> bool:
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)) or (
        isinstance(error, RuntimeError) and "SparkContext" in str(error) and "stopped" in str(error)
    )


def _details_of(error: BaseException) -> tuple[str, str, str]:
    """Return the message, the error condition and the SQLSTATE; empty where missing."""
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        # Each of these calls Java, which may be gone by now.
        try:
            message = error.getMessage() or str(error)
            condition, state = error.getCondition() or "", error.getSqlState() or ""
        except Exception:
            message, condition, state = str(error), "", ""
    else:
        java = getattr(error, "java_exception", None)
        try:
            message = str(java.toString()) if java is not None else str(error)
        except Exception:
            message = str(error)
        condition = state = ""
    if _WRAPPER in message.partition("\n")[0]:
        message = _cause_of(error) or message
    # The cause of an aborted job is only in its text.
    if not state or not state.startswith(_CALLERS_FAULT):
        inner = re.search(r"\[([A-Z][A-Z0-9_.]+)\][^\n]*SQLSTATE: (\w{5})", message)
        if inner:
            condition, state = inner[1], inner[2]
    return message, condition, state


def _cause_of(error: BaseException) -> str:
    """Return the text of the innermost Java exception; its wrapper has none of its own."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    said = ""
    try:
        while java is not None:
            said, java = str(java.toString()), java.getCause()
    except Exception:
        return said
    return said


def _is_callers_fault(error: BaseException, state: str) -> bool:
    from pyspark import errors

    if state:
        return state.startswith(_CALLERS_FAULT)
    return isinstance(
        error,
        (
            errors.AnalysisException,
            errors.ParseException,
            errors.ArithmeticException,
            errors.ArrayIndexOutOfBoundsException,
            errors.DateTimeException,
            errors.NumberFormatException,
            errors.PySparkTypeError,
            errors.PySparkValueError,
        ),
    )
