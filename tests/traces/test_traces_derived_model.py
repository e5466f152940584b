"""Random acts on the trace store, and plain Python beside it: what is derived always equals a recomputation."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.vacuum import vacuum
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.storage import failpoints
from crannog.traces.derived import derive as derive_module
from crannog.traces.derived.derive import derive
from derived_stand_in import stand_in_for_all
from lakes import opened
from local_traces import LocalTraces
from span_samples import DAY, NOON, Sent, any_spans, body, counted, derived_by_hand, seen, stored, trace_id

SERVICES = ("web", "api", "db")
MOMENTS = ("rewrite.files_written", "rewrite.verified", "rewrite.synced", "rewrite.committed")


class Died(Exception):
    """The process is gone at this moment."""


def with_service_of_its_id(sent: Sent) -> Sent:
    """The same service whenever a span is sent: so no older copy comes up when those of a service expire."""
    return replace(sent, service=SERVICES[sent.span % 3])


class TraceStore(RuleBasedStateMachine):
    """Acts on one warehouse, with the requests that should still count beside it."""

    options: ClassVar[dict[str, Any]] = {}

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="crannog-traces-")
        self.settings = Settings(warehouse=self.folder, spark_memory_mb=1024, lease_wait_s=0, **self.options)
        self.requests: list[list[Sent]] = []
        self._connect()

    def _connect(self) -> None:
        self.lake: Lake = opened(self.settings)
        self.traces = LocalTraces(self.lake.operations.warehouse, self.lake.operations.tables)
        self.traces.spans  # noqa: B018  made now: every act needs it

    def _send(self, request: list[Sent]) -> None:
        outcome = self.traces.write_otlp(body(request))
        assert outcome.rejected == 0
        if not outcome.duplicate:
            self.requests.append(request)

    def _forget(self, goes: Any) -> None:
        self.requests = [[sent for sent in request if not goes(sent)] for request in self.requests]

    # -- writing -------------------------------------------------------------------------------------------------------

    @rule(spans=any_spans())
    def write(self, spans: list[Sent]) -> None:
        self._send([with_service_of_its_id(sent) for sent in spans])

    @precondition(lambda self: any(self.requests))
    @rule(data=st.data(), change=st.booleans())
    def send_again(self, data: st.DataObject, change: bool) -> None:
        every = [sent for request in self.requests for sent in request]
        chosen = data.draw(
            st.lists(
                st.sampled_from(every), min_size=1, max_size=3, unique_by=lambda sent: (sent.day, sent.trace, sent.span)
            )
        )
        self._send([replace(sent, name="renamed", duration=sent.duration // 2) if change else sent for sent in chosen])

    # -- upkeep --------------------------------------------------------------------------------------------------------

    @rule()
    def fold(self) -> None:
        fold(self.traces.spans)

    @rule()
    def derive(self) -> None:
        self.traces.derive()
        assert stored(self.lake) == derived_by_hand(counted(self.requests))

    @rule()
    def derive_what_is_folded(self) -> None:
        derive(self.lake.operations.tables, self.traces.spans)

    @rule(moment=st.sampled_from(MOMENTS), number=st.integers(1, 4))
    def die_while_deriving(self, moment: str, number: int) -> None:
        left = [number]

        def dies(phase: str) -> None:
            left[0] -= phase == moment
            if left[0] == 0:
                raise Died

        failpoints.hook = dies
        try:
            with suppress(Died):
                self.traces.derive()
        finally:
            failpoints.hook = None
        self.lake.close()
        self._connect()

    @rule(number=st.integers(1, 4))
    def derive_twice_at_once(self, number: int) -> None:
        fold(self.traces.spans)
        left = [number]

        def overtakes(phase: str) -> None:
            left[0] -= phase == "rewrite.verified"
            if left[0] == 0:
                left[0] = -100
                with opened(self.settings) as other:
                    LocalTraces(other.operations.warehouse, other.operations.tables).derive()

        failpoints.hook = overtakes
        try:
            self.traces.derive()
        finally:
            failpoints.hook = None
        assert stored(self.lake) == derived_by_hand(counted(self.requests))

    @rule()
    def compact(self) -> None:
        compact(self.traces.spans)

    @rule()
    def vacuum_at_once(self) -> None:
        vacuum(self.traces.spans, retention_s=0, force=True)

    @precondition(lambda self: any(self.requests))
    @rule(data=st.data())
    def work_out_a_day_anew(self, data: st.DataObject) -> None:
        self.traces.derive(
            anew=[data.draw(st.sampled_from([sent.day for request in self.requests for sent in request]))]
        )

    # -- taking away ---------------------------------------------------------------------------------------------------

    @rule(days=st.integers(-1, 1), service=st.sampled_from((None, *SERVICES)))
    def expire(self, days: int, service: str | None) -> None:
        before = Sent(1, 1, start=NOON + days * DAY).day
        self.traces.expire(before, service=service)
        self._forget(lambda sent: sent.day < before and service in (None, sent.service))

    @precondition(lambda self: any(self.requests))
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        trace = data.draw(st.sampled_from([sent.trace for request in self.requests for sent in request]))
        receipt = self.traces.erase([trace_id(trace).hex()])
        assert all(place.after == 0 for place in receipt.places)
        self._forget(lambda sent: sent.trace == trace)

    @precondition(lambda self: any(self.requests))
    @rule(data=st.data())
    def erase_while_deriving(self, data: st.DataObject) -> None:
        trace = data.draw(st.sampled_from([sent.trace for request in self.requests for sent in request]))
        found, plain = [], derive_module.find_missing_rows

        def overtaken(*arguments: Any) -> Any:
            missing = plain(*arguments)
            if not found:
                found.append(missing)
                with opened(self.settings) as other:
                    LocalTraces(other.operations.warehouse, other.operations.tables).erase([trace_id(trace).hex()])
                self._forget(lambda sent: sent.trace == trace)
            return missing

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(derive_module, "find_missing_rows", overtaken)
            self.traces.derive()
        derive(self.lake.operations.tables, self.traces.spans)
        assert stored(self.lake) == derived_by_hand(counted(self.requests))

    @invariant()
    def readers_see_what_counts(self) -> None:
        if hasattr(self, "lake"):
            assert seen(self.lake, self.traces) == derived_by_hand(counted(self.requests))

    def teardown(self) -> None:
        if hasattr(self, "lake"):
            self.lake.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def run(examples: int, steps: int) -> None:
    limits = how(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if examples > 10 else [Phase.generate],
    )
    run_state_machine_as_test(TraceStore, settings=limits)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_all(monkeypatch)


def test_any_history_gives_what_a_recomputation_gives(no_spark: None) -> None:
    run(examples=3, steps=12)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_histories_give_what_a_recomputation_gives(no_spark: None) -> None:
    run(examples=60, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_history_gives_what_a_recomputation_gives_on_spark(spark: SparkRuntime) -> None:
    run(examples=3, steps=12)
