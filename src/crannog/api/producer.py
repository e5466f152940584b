"""Inserts single rows into a table, sent in batches by a background thread, so that callers do not wait for commits.

Each row is either stored in the table, once, or reported in a `Failure` with the error.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from crannog.api.delivery import Delivery, Failure, Rows, leave, look_after
from crannog.api.reports import WriteReceipt
from crannog.errors import BadRows, CallerError, Overloaded, Unavailable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from crannog.api.table import Table

WHEN_FULL = ("block", "drop_oldest", "raise")
_FAILURES_KEPT = 1_000
_LAST_PAUSE_S = 0.5
_GRACE_S = 0.2
_log = logging.getLogger("crannog.producer")


class ProducerArguments(TypedDict, total=False):
    """The options of a producer; see `Producer`."""

    batch_rows: int
    max_age_s: float
    queue_rows: int
    when_full: str
    block_s: float
    give_up_s: float | None
    on_failure: Callable[[list[dict[str, Any]], Exception], object] | None


class Producer:
    """Accepts rows for one table and sends them in order. Thread-safe and fork-safe.

    A batch is sent at `batch_rows` rows, or when its oldest row has waited `max_age_s`. After a temporary failure it is
    retried with the same batch id, so no row is duplicated; a batch refused for a bad row is halved until only the bad
    rows are left, and the good rows are stored in order. At `queue_rows` waiting rows, `when_full` decides: "block" waits
    up to `block_s` and then raises Overloaded, "raise" raises it immediately, "drop_oldest" reports the oldest rows as failed.
    `give_up_s` limits the retries of one batch; None means until the producer is closed.
    """

    def __init__(
        self,
        table: Table,
        model: type[BaseModel] | None = None,
        *,
        batch_rows: int = 1_000,
        max_age_s: float = 1.0,
        queue_rows: int = 100_000,
        when_full: str = "block",
        block_s: float = 5.0,
        give_up_s: float | None = None,
        on_failure: Callable[[list[dict[str, Any]], Exception], object] | None = None,
    ) -> None:
        _check(batch_rows, max_age_s, queue_rows, when_full, block_s, give_up_s)
        self._table, self._model, self._on_failure = table, model, on_failure
        self._batch_rows, self._max_age_s = min(batch_rows, queue_rows), max_age_s
        self._queue_rows, self._when_full, self._block_s = queue_rows, when_full, block_s
        self._give_up_s = give_up_s
        self._delivery = Delivery(
            self._append, self, stored=self._stored, failed=self._fail, tried_again=self._tried_again
        )
        self._closed = False
        self.start_empty()
        look_after(self)

    def start_empty(self) -> None:
        """Discard everything, in a forked child: the parent sends what is waiting."""
        self._changed = threading.Condition()
        self.sending = threading.Lock()
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque()
        self._out: Rows = []  # rows being sent
        self._done = 0  # rows that are neither waiting nor being sent, a prefix of those accepted
        self._taken = 0  # rows accepted so far
        self._wanted = 0  # a flush waits for the rows up to this one
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None
        self._sent = self._failed = self._retries = 0
        self._failures: deque[Failure] = deque(maxlen=_FAILURES_KEPT)

    # -- taking in -------------------------------------------------------------------------------------------

    def insert(self, row: BaseModel | Mapping[str, Any]) -> None:
        """Accept a copy of a row, to be stored soon. Raises BadRows if it does not fit the model, Overloaded if the queue is full."""
        self.insert_many([row])

    def insert_many(self, rows: Iterable[BaseModel | Mapping[str, Any]]) -> None:
        """Accept rows one by one; the first that is refused raises, the rows before it are accepted."""
        for row in rows:
            self._take(self._read(row))

    def _read(self, row: Any) -> dict[str, Any]:
        if self._model is not None and not isinstance(row, self._model):
            row = validated(self._model, row)
        if hasattr(row, "model_dump"):
            return dict(row.model_dump(by_alias=True))
        if not isinstance(row, Mapping):
            raise BadRows(
                f"cannot insert into {self._table.name}: a row is a dict or a model, got {type(row).__name__}"
            )
        return dict(row)

    def _take(self, row: dict[str, Any]) -> None:
        dropped = None
        with self._changed:
            self._check_open()
            if len(self._waiting) + len(self._out) >= self._queue_rows:
                dropped = self._room()
            self._waiting.append((time.monotonic(), row))
            self._taken += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name=f"crannog-producer-{self._table.name}", daemon=True
                )
                self._thread.start()
            if len(self._waiting) in (1, self._batch_rows):
                self._changed.notify_all()
        if dropped is not None:
            self._report(dropped)

    def _room(self) -> Failure | None:
        """Wait for room in the queue, or make room and return the dropped row."""
        full = Overloaded(
            f"{self._queue_rows:,} rows are waiting to be stored in {self._table.name}, which is the limit; try again later",
            retry_after_s=max(self._max_age_s, 0.1),
        )
        if self._when_full == "drop_oldest" and self._waiting:
            self._failed += 1
            return Failure((self._waiting.popleft()[1],), full)
        until = time.monotonic() + (0.0 if self._when_full == "raise" else self._block_s)
        while len(self._waiting) + len(self._out) >= self._queue_rows:
            left = until - time.monotonic()
            if left <= 0:
                raise full
            self._changed.wait(left)
            self._check_open()
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise CallerError(f"this producer of {self._table.name} is closed; create another")

    # -- sending, in the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        while rows := self._next_batch():
            self._delivery.send(rows)

    def _next_batch(self) -> Rows:
        """Wait for the next batch that is due; empty once the producer is closed and drained."""
        with self._changed:
            while self._is_mine():
                if self._waiting:
                    left: float | None = self._waiting[0][0] + self._max_age_s - time.monotonic()
                    hurry = self._closed or self._wanted > self._taken - len(self._waiting)
                    if hurry or (left is not None and left <= 0) or len(self._waiting) >= self._batch_rows:
                        return self._taken_out()
                elif self._closed:
                    return []
                else:
                    left = None
                self._changed.wait(left)
            return []

    def _taken_out(self) -> Rows:
        self._done = self._taken - len(self._waiting)
        self._out = [self._waiting.popleft()[1] for _ in range(min(self._batch_rows, len(self._waiting)))]
        return list(self._out)

    def _append(self, rows: Rows, batch_id: str) -> WriteReceipt:
        with self.sending:  # a fork waits for it
            if not self._is_mine():
                raise CallerError("the producer was closed")
            return self._table.append(rows, batch_id)

    def _is_mine(self) -> bool:
        """Return whether this thread still sends for the producer; `close` abandons a thread that hangs in a call."""
        return threading.current_thread() is self._thread

    def pause(self, seconds: float, failing_since: float) -> bool:
        """Wait before the next try; False to give up instead."""
        start = time.monotonic()
        with self._changed:
            while True:
                now = time.monotonic()
                ends = [self._deadline, None if self._give_up_s is None else failing_since + self._give_up_s]
                if any(end is not None and now >= end for end in ends):
                    return False
                # `close` does not wait for the end of a long pause.
                left = start + (seconds if self._deadline is None else min(seconds, _LAST_PAUSE_S)) - now
                if left <= 0:
                    return True
                self._changed.wait(min([left, *(end - now for end in ends if end is not None)]))

    def _stored(self, rows: int) -> None:
        with self._changed:
            if self._is_mine():
                self._sent += rows
                self._forget(rows)

    def _forget(self, rows: int) -> None:
        del self._out[:rows]
        self._done += rows
        self._changed.notify_all()

    def _tried_again(self) -> None:
        with self._changed:
            self._retries += 1

    def _fail(self, failure: Failure) -> None:
        with self._changed:
            if not self._is_mine():
                return
            self._failed += len(failure.rows)
            self._forget(len(failure.rows))
        self._report(failure)

    def _report(self, failure: Failure) -> None:
        self._failures.append(failure)
        if self._on_failure is None:
            _log.warning(
                "%s rows for %s were not stored: %s", f"{len(failure.rows):,}", self._table.name, failure.error
            )
            return
        try:
            self._on_failure(list(failure.rows), failure.error)
        except Exception:
            _log.exception("on_failure of the producer of %s raised an error", self._table.name)

    # -- waiting and ending ----------------------------------------------------------------------------------

    def flush(self, timeout: float | None = 30.0) -> bool:
        """Send the rows inserted so far and wait until all are stored or reported; False after the timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            mine = self._wanted = max(self._wanted, self._taken)
            self._changed.notify_all()
            while (self._done if self._out else self._taken - len(self._waiting)) < mine:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self, timeout: float = 30.0) -> None:
        """Accept no more rows, send those that are waiting, and close; rows not stored in time are reported as failed."""
        with self._changed:
            self._closed = True
            self._deadline = time.monotonic() + timeout
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout + _GRACE_S)
            self._give_up(timeout)
        leave(self)

    def _give_up(self, timeout: float) -> None:
        with self._changed:
            rows = [*self._out, *(row for _, row in self._waiting)]
            if not rows:
                return
            self._thread = None  # it may hang in a call, and is not waited for
            self._waiting.clear()
            self._out = []
            self._changed.notify_all()
            self._failed += len(rows)
        error = Unavailable(
            f"the producer of {self._table.name} was closed and {len(rows):,} rows were not acknowledged within {timeout:g} s;"
            " the rows of the last batch may or may not be stored"
        )
        self._report(Failure(tuple(rows), error))

    # -- looking ---------------------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Rows that were acknowledged."""
        return self._sent

    @property
    def queued(self) -> int:
        """Rows that are waiting or being sent."""
        with self._changed:
            return len(self._waiting) + len(self._out)

    @property
    def failed(self) -> int:
        """Rows that were reported as failed."""
        return self._failed

    @property
    def retries(self) -> int:
        """The number of retries."""
        return self._retries

    @property
    def failures(self) -> list[Failure]:
        """The last failures, up to 1,000 of them, oldest first."""
        return list(self._failures)

    def read(self, limit: int = 100) -> list[Any]:
        """Return some rows of the table, as models if the producer has one; raises BadRows if a row does not fit it."""
        found = self._table.preview(limit)
        columns = [name for name in found.column_names if not name.startswith("_")]
        columns = columns if self._model is None else columns_of(self._model, columns)
        rows = found.select(columns).to_pylist(maps_as_pydicts="strict")
        return rows if self._model is None else [validated(self._model, row) for row in rows]

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Producer({self._table.name!r}, sent={self.sent}, queued={self.queued}, failed={self.failed})"


class Producers:
    """The producers of one connection, which closes them first."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[Producer] = weakref.WeakSet()

    def make(self, table: Table, model: type[BaseModel] | None, **options: Unpack[ProducerArguments]) -> Producer:
        producer = Producer(table, model, **options)
        self._open.add(producer)
        return producer

    def close(self) -> None:
        for producer in list(self._open):
            producer.close()


def _check(
    batch_rows: int, max_age_s: float, queue_rows: int, when_full: str, block_s: float, give_up_s: float | None
) -> None:
    for name, value, most in (("batch_rows", batch_rows, 1_000_000), ("queue_rows", queue_rows, 100_000_000)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise CallerError(f"{name} is a whole number from 1 to {most:,}, got {value!r}")
    for name, seconds in (("max_age_s", max_age_s), ("block_s", block_s), ("give_up_s", give_up_s)):
        if not (seconds is None and name == "give_up_s") and (
            not isinstance(seconds, (int, float)) or not 0 <= seconds <= 86_400
        ):
            raise CallerError(f"{name} is a number of seconds from 0 to 86,400, got {seconds!r}")
    if when_full not in WHEN_FULL:
        raise CallerError(f"when_full is one of {', '.join(WHEN_FULL)}, got {when_full!r}")


def columns_of(model: type[BaseModel], columns: list[str]) -> list[str]:
    """Return the columns that the model has; the table may have more."""
    if model.model_config.get("extra") == "allow":
        return columns
    known = {field.serialization_alias or name for name, field in model.model_fields.items()}
    return [name for name in columns if name in known]


def validated(model: type[BaseModel], row: Any) -> BaseModel:
    """Return a row as a model; raises BadRows, naming the first field that does not fit."""
    from pydantic import ValidationError

    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the row"
        raise BadRows(f"the row does not fit {model.__name__}: {where}: {first['msg']}") from None
