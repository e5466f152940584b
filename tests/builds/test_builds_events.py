"""The eight kinds of events: what they refuse, and that JSON and protobuf lose nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crannog.builds as builds
from build_samples import NESTED, one_of_each, random_stream
from crannog.builds import (
    BuildEvent,
    BuildRequestEvent,
    BuildRequestStatus,
    DataDep,
    DepType,
    JobConfig,
    JobEvent,
    JobGraph,
    JobGraphEvent,
    JobStatus,
    PartitionEvent,
    PartitionManifest,
    PartitionStatus,
    Task,
)
from crannog.builds.events import PAYLOADS, Kind
from crannog.builds.protobuf import (
    events_from_protobuf,
    events_to_protobuf,
    from_protobuf,
    message_type,
    to_protobuf,
)
from crannog.errors import BadRows, CallerError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def exactly(value: Any) -> str:
    """A form in which 1, 1.0 and True differ."""
    return json.dumps(value)


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.event_type)
def test_each_kind_survives_json_and_protobuf(event: BuildEvent) -> None:
    assert BuildEvent.from_dict(json.loads(event.as_json())) == event
    assert from_protobuf(to_protobuf(event)) == event
    assert exactly(from_protobuf(to_protobuf(event)).as_dict()) == exactly(event.as_dict())


def test_many_events_in_one_message() -> None:
    events = list(random_stream(1, 200))
    assert events_from_protobuf(events_to_protobuf(events)) == events


@settings(max_examples=60, deadline=None)
@given(document=JSON)
def test_documents_are_kept_exactly(document: Any) -> None:
    event = BuildEvent("e", 0, "b", JobEvent("r", "l", [], JobStatus.RUNNING, config=document, manifests=[document]))
    for copy in (BuildEvent.from_dict(json.loads(event.as_json())), from_protobuf(to_protobuf(event))):
        assert isinstance(copy.payload, JobEvent)
        assert exactly(copy.payload.config) == exactly(document)
        assert exactly(copy.payload.manifests) == exactly([document])


def test_a_document_is_a_copy() -> None:
    document = {"outputs": ["p"]}
    payload = JobGraphEvent(document)
    document["outputs"].append("q")
    assert payload.job_graph == {"outputs": ["p"]}


def test_typed_documents_become_json() -> None:
    config = JobConfig(outputs=["p"], inputs=[DataDep("q", DepType.QUERY)], args=["-x"], env={"A": "1"})
    manifest = PartitionManifest(outputs=["p"], inputs=["q"], start_time=1, end_time=2, task=Task("//j", config))
    payload = JobEvent("r", "//j", ["p"], JobStatus.COMPLETED, config=config, manifests=[manifest])
    assert payload.config == {
        "outputs": ["p"],
        "inputs": [{"dep_type": "QUERY", "partition_ref": "q"}],
        "args": ["-x"],
        "env": {"A": "1"},
    }
    assert payload.manifests[0]["task"]["job"] == {"label": "//j"}
    graph = JobGraphEvent(JobGraph("g", ["p"], [Task("//j", config)]))
    assert graph.job_graph["nodes"][0]["config"] == payload.config


def test_statuses_have_codes_and_names() -> None:
    assert [(status.name, status.code) for status in BuildRequestStatus] == [
        ("UNKNOWN", 0), ("RECEIVED", 1), ("PLANNING", 2), ("EXECUTING", 3), ("COMPLETED", 4), ("FAILED", 5), ("CANCELLED", 6), ("ANALYSIS_COMPLETED", 7),
    ]  # fmt: skip
    assert [status.label for status in PartitionStatus] == [
        "PARTITION_UNKNOWN", "PARTITION_REQUESTED", "PARTITION_SCHEDULED", "PARTITION_BUILDING", "PARTITION_AVAILABLE", "PARTITION_FAILED", "PARTITION_DELEGATED",
    ]  # fmt: skip
    assert [status.code for status in JobStatus] == list(range(6))
    assert JobEvent("r", "l", [], JobStatus.FAILED).as_dict()["status_name"] == "JOB_FAILED"
    assert PartitionEvent("p", 4).status is PartitionStatus.AVAILABLE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BuildEvent("", 0, "b", builds.BuildCancelEvent()), "event_id is empty"),
        (lambda: BuildEvent("e", -1, "b", builds.BuildCancelEvent()), "between 0 and"),
        (lambda: BuildEvent("e", 2**63, "b", builds.BuildCancelEvent()), "between 0 and"),
        (lambda: BuildEvent("e", 1.0, "b", builds.BuildCancelEvent()), "whole number of nanoseconds"),
        (lambda: BuildEvent("e", 0, "", builds.BuildCancelEvent()), "build_request_id is empty"),
        (lambda: BuildEvent("e", 0, "b", {"reason": ""}), "one of the eight kinds"),
        (lambda: BuildEvent("e\0", 0, "b", builds.BuildCancelEvent()), "contains NUL"),
        (lambda: BuildEvent("e" * 2000, 0, "b", builds.BuildCancelEvent()), "1,024 is the most"),
        (lambda: BuildRequestEvent(9), "9 is not a code of BuildRequestStatus"),
        (lambda: BuildRequestEvent(JobStatus.RUNNING), "JobStatus.RUNNING is not a BuildRequestStatus"),
        (lambda: BuildRequestEvent(BuildRequestStatus.RECEIVED, "p"), "a list of names"),
        (lambda: BuildRequestEvent(BuildRequestStatus.RECEIVED, ["p", ""]), r"requested_partitions\[1\] is empty"),
        (lambda: PartitionEvent("p", PartitionStatus.FAILED, "\ud800"), "surrogate"),
        (lambda: JobEvent("r", "l", [], "RUNS"), "'RUNS' is not a JobStatus"),
        (lambda: JobEvent("r", "l", [], JobStatus.RUNNING, config={"a": {1}}), "config.a is set"),
        (lambda: JobEvent("r", "l", [], JobStatus.RUNNING, config={1: 2}), "names in JSON are text"),
        (lambda: JobEvent("r", "l", [], JobStatus.RUNNING, config=float("nan")), "JSON cannot hold"),
        (lambda: builds.TaskCancelEvent(""), "job_run_id is empty"),
    ],
)
def test_wrong_events_are_refused(make: Any, says: str) -> None:
    with pytest.raises(CallerError, match=says):
        make()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"event_type": "job"}, "is of type job and carries a partition_event"),
        ({"event_type": "nothing"}, "is not a kind of event"),
        ({"partition_event": None}, "has no partition_event"),
        ({"partition_event": 3}, "is an object"),
        ({"surprise": 1}, "no field surprise"),
        ({"timestamp": None}, "needs timestamp"),
        ({"partition_event": {"partition_ref": "p", "status_code": 4}}, "needs status_code and status_name"),
        (
            {"partition_event": {"partition_ref": "p", "status_code": 4, "status_name": "PARTITION_FAILED"}},
            "must agree",
        ),
        (
            {"partition_event": {"partition_ref": "p", "status_code": 44, "status_name": "PARTITION_FAILED"}},
            "44 is not a code",
        ),
        ({"partition_event": {"status_code": 4, "status_name": "PARTITION_AVAILABLE"}}, "needs partition_ref"),
        (
            {"partition_event": {"partition_ref": "p", "status_code": 4, "status_name": "PARTITION_AVAILABLE", "x": 1}},
            "no field x",
        ),
    ],
)
def test_wrong_json_is_refused(change: dict[str, Any], says: str) -> None:
    good = one_of_each()[1].as_dict()
    with pytest.raises(BadRows, match=says):
        BuildEvent.from_dict({**good, **change})


def test_wrong_protobuf_is_refused() -> None:
    with pytest.raises(BadRows, match=r"not a crannog\.builds\.BuildEvent"):
        from_protobuf(b"\xff\xff\xff")
    with pytest.raises(BadRows, match="no payload"):
        from_protobuf(message_type("BuildEvent")(event_id="e").SerializeToString())
    message = message_type("BuildEvent")(event_id="e", build_request_id="b")
    message.partition_event.partition_ref = "p"
    message.partition_event.status_code = 4
    message.partition_event.status_name = "PARTITION_FAILED"
    with pytest.raises(BadRows, match="must agree"):
        from_protobuf(message.SerializeToString())


def test_the_descriptor_is_that_of_the_proto_file() -> None:
    """Every field of the text stands in the compiled descriptor with its number, and no other does."""
    proto = (Path(builds.__file__).parent / "build_events.proto").read_text()
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", proto, re.DOTALL | re.MULTILINE):
        written = {field: int(number) for field, number in re.findall(r"\w+ (\w+) = (\d+);", body)}
        assert {field.name: field.number for field in message_type(name).DESCRIPTOR.fields} == written, name
    for enum, status in (
        ("BuildRequestStatus", BuildRequestStatus),
        ("PartitionStatus", PartitionStatus),
        ("JobStatus", JobStatus),
    ):
        [body] = re.findall(rf"^enum {enum} \{{(.*?)^\}}", proto, re.DOTALL | re.MULTILINE)
        assert {member.label: member.code for member in status} == {
            name: int(code) for name, code in re.findall(r"(\w+) = (\d+);", body)
        }
    for kind, payload in PAYLOADS.items():
        fields = set(message_type(payload.__name__).DESCRIPTOR.fields_by_name)
        assert fields == set(next(event for event in one_of_each() if event.kind is kind).payload.as_dict()), kind


def test_nested_sample_covers_what_json_loses_elsewhere() -> None:
    assert exactly(json.loads(json.dumps(NESTED))) == exactly(NESTED)
    assert Kind.read("job_event") is Kind.JOB
