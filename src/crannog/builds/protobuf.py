"""Events as protocol buffers and back, by the descriptor of `build_events.proto`.

`build_events.binpb` is the compiled descriptor; a test compares the two. Compile it with
`python -m grpc_tools.protoc -I. --descriptor_set_out=build_events.binpb build_events.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from crannog.builds.event_values import from_json, to_json
from crannog.builds.events import PAYLOADS, BuildEvent, Kind
from crannog.errors import BadRows, needed_for

_DOCUMENTS = frozenset({"config", "manifests", "job_graph"})


@cache
def message_type(name: str) -> Any:
    """Return the message class `crannog.builds.<name>`, for programs that use protobuf directly."""
    pool = _pool()
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"crannog.builds.{name}"))


@cache
def _pool() -> Any:
    with needed_for("the protobuf form of build events"):
        from google.protobuf import descriptor_pb2, descriptor_pool
    stored = descriptor_pb2.FileDescriptorSet.FromString(
        files("crannog.builds").joinpath("build_events.binpb").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    for file in stored.file:
        pool.Add(file)
    return pool


def to_message(event: BuildEvent) -> Any:
    """Return the event as a `crannog.builds.BuildEvent` message."""
    message = message_type("BuildEvent")(
        event_id=event.event_id, timestamp=event.timestamp, build_request_id=event.build_request_id, index=event.index
    )
    payload = getattr(message, event.kind.column)
    payload.SetInParent()  # a payload with only defaults must still have its kind
    for name, value in event.payload.as_dict().items():
        if isinstance(value, list) and name not in _DOCUMENTS:
            getattr(payload, name).extend(value)
        elif value is not None:
            setattr(payload, name, to_json(value) if name in _DOCUMENTS else value)
    return message


def from_message(message: Any) -> BuildEvent:
    """Read a `crannog.builds.BuildEvent` message. Raises BadRows if it is not a complete event."""
    column = message.WhichOneof("payload")
    if column is None:
        raise BadRows(f"event {message.event_id!r} has no payload of a known kind")
    stored = getattr(message, column)
    values: dict[str, Any] = {}
    for field in stored.DESCRIPTOR.fields:
        if field.has_presence and not stored.HasField(field.name):
            continue
        value = getattr(stored, field.name)
        if field.name in _DOCUMENTS:
            values[field.name] = from_json(value, field.name)
        else:
            values[field.name] = list(value) if field.is_repeated else value
    payload = PAYLOADS[Kind.read(column)].from_dict(values)
    index = message.index if message.HasField("index") else None
    return BuildEvent(message.event_id, message.timestamp, message.build_request_id, payload, index)


def to_protobuf(event: BuildEvent) -> bytes:
    """Return the event as the bytes of a protobuf message."""
    return bytes(to_message(event).SerializeToString(deterministic=True))


def from_protobuf(data: bytes) -> BuildEvent:
    """Read an event from the bytes of a protobuf message. Raises BadRows if they are not one."""
    return from_message(_parsed("BuildEvent", data))


def events_to_protobuf(events: Iterable[BuildEvent]) -> bytes:
    """Return several events as one `crannog.builds.BuildEvents` message."""
    whole = message_type("BuildEvents")()
    for event in events:
        whole.events.append(to_message(event))
    return bytes(whole.SerializeToString(deterministic=True))


def events_from_protobuf(data: bytes) -> list[BuildEvent]:
    """Read the events of a `crannog.builds.BuildEvents` message."""
    return [from_message(message) for message in _parsed("BuildEvents", data).events]


def _parsed(name: str, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return message_type(name).FromString(data)
    except DecodeError as error:
        raise BadRows(f"these {len(data):,} bytes are not a crannog.builds.{name}: {error}") from None
