"""The filter language: what it reads, what it refuses, and that its SQL means what the plain evaluator says."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.api.traces import Span
from crannog.errors import CallerError
from crannog.traces.ingest.decode import resource_spans
from crannog.traces.ingest.flatten import span_rows
from crannog.traces.search.filter_parser import parse_filter
from crannog.traces.search.filter_sql import condition_sql, null_as_false, prefilter_sql
from crannog.traces.search.filter_tree import (
    EVENT_NAME,
    FIELDS,
    OPERATORS,
    TEXT,
    And,
    Compare,
    Exists,
    Field,
    Filter,
    Level,
    Not,
    OneOf,
    Or,
    Type,
)
from crannog.traces.search.snapshot_reader import pruning_conditions
from crannog.traces.trace import span_values
from filter_reference import matches
from otlp_samples import START, attribute, doubles, keys, request_of, requests, span, span_id, texts, trace_id, whole

SOME = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(SOME, max_examples=1_000)
CONNECTION = duckdb.connect()

# -- filters of any kind -------------------------------------------------------------------------------------------

attributes = st.builds(
    Field, st.sampled_from([Level.ANY, Level.SPAN, Level.RESOURCE, Level.SCOPE, Level.EVENT, Level.LINK]), keys
)
fields = st.one_of(attributes, attributes, st.sampled_from([*FIELDS.values(), EVENT_NAME]))
numbers = st.one_of(whole, doubles.filter(math.isfinite), st.integers(), st.sampled_from([0, 1, 1.0, -0.0, 10**400]))
patterns = st.sampled_from(["a", "^a", "b$", "[a-z]+", ".", "(?i)A", r"\d", "", "k=1|x", "\x00"])


def values(field: Field, operator: str) -> st.SearchStrategy[Any]:
    if operator in ("=~", "!~"):
        return patterns
    match field.type:
        case Type.ATTRIBUTE if operator in ("contains", "is"):
            return st.one_of(
                texts, st.sampled_from(["1", "1.0", "-0.0", "0.0", "true", "1e+22", "5e-324", "[1]", "null"])
            )
        case Type.ATTRIBUTE:
            typed = st.one_of(texts, numbers)
            return typed if operator in ("<", "<=", ">", ">=") else st.one_of(typed, st.booleans())
        case Type.NUMBER:
            return numbers
        case Type.DURATION:
            return st.one_of(st.integers(0, 10**13), st.fractions(0, 10**12), st.just(2**70))
        case Type.TIME:
            return st.one_of(st.integers(START, START + 10**12), st.sampled_from([0, 2**63, -1]))
        case Type.ID:
            length = 16 if field.name == "trace_id" else 8
            return st.binary(min_size=length, max_size=length).filter(any).map(bytes.hex)
        case Type.KIND:
            return st.sampled_from(["UNSPECIFIED", "INTERNAL", "SERVER", "CONSUMER"])
        case Type.STATUS:
            return st.sampled_from(["UNSET", "OK", "ERROR"])
        case Type.BOOLEAN:
            return st.booleans()
    return texts


@st.composite
def comparisons(draw: st.DrawFn) -> Filter:
    field = draw(fields)
    operator = draw(st.sampled_from(OPERATORS[field.type]))
    if operator == "exists":
        return Exists(field)
    if operator in ("in", "not in"):
        return OneOf(
            field, tuple(draw(st.lists(values(field, operator), min_size=1, max_size=3))), operator == "not in"
        )
    return Compare(field, operator, draw(values(field, operator)))


def several(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    some = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, some), st.builds(Or, some))


filters = st.recursive(comparisons(), several, max_leaves=5)


def checked(request: ExportTraceServiceRequest, *filters: Filter) -> list[list[bool]]:
    """Which spans of a request meet each filter, after the two evaluators were compared."""
    rows, _ = span_rows(resource_spans(request))
    columns = ", ".join(f"{null_as_false(condition_sql(one))} AS c{place}" for place, one in enumerate(filters))
    CONNECTION.register("spans", rows)
    for one in filters:  # what walks use to look quickly misses nothing
        exact, loose = null_as_false(condition_sql(one)), null_as_false(prefilter_sql(one))
        if exact != loose:
            assert CONNECTION.execute(f"SELECT count(*) FROM spans WHERE {exact} AND NOT {loose}").fetchall() == [
                (0,)
            ], one
    found = CONNECTION.execute(f"SELECT {columns} FROM spans").fetchall()
    for row, values, answers in zip(rows.to_pylist(), span_values(rows), found, strict=True):
        for one, answer in zip(filters, answers, strict=True):
            assert matches(one, Span(*values), row["search_blob"]) == answer, (one, condition_sql(one), row)
    return [list(answers) for answers in zip(*found, strict=True)]


@SOME
@given(requests, st.lists(filters, min_size=1, max_size=4))
def test_sql_says_what_the_plain_evaluator_says(request: ExportTraceServiceRequest, filters: list[Filter]) -> None:
    checked(request, *filters)


@pytest.mark.slow
@MANY
@given(requests, st.lists(filters, min_size=4, max_size=12))
def test_sql_says_what_the_plain_evaluator_says_over_and_over(
    request: ExportTraceServiceRequest, filters: list[Filter]
) -> None:
    checked(request, *filters)


@st.composite
def near(draw: st.DrawFn) -> tuple[ExportTraceServiceRequest, list[Filter]]:
    """Values that are hard to tell apart, on one key, sometimes sent twice."""
    alike = [
        1,
        1.0,
        "1",
        True,
        "true",
        10,
        0,
        -0.0,
        0.0,
        2**53,
        2**53 + 1,
        float(2**53),
        math.inf,
        -math.inf,
        math.nan,
        "",
        "NaN",
    ]
    alike += [
        None,
        [1],
        ["1"],
        {"$each": 1},
        {"k": "1"},
        b"1",
        1.5,
        -1,
        2**63 - 1,
        -(2**63),
        1e300,
        1e22,
        "a\x1f\x00/",
        "Ä",
        "ä",
        0.1,
    ]
    sent = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3))
    request = request_of(span(1, 1))
    request.resource_spans[0].scope_spans[0].spans[0].attributes.extend(attribute("k", value) for value in sent)
    plain = st.sampled_from(
        [
            value
            for value in alike
            if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        ]
    )
    filters = []
    for _ in range(8):
        operator = draw(st.sampled_from(OPERATORS[Type.ATTRIBUTE]))
        value = draw(plain)
        if operator in ("=~", "!~", "contains", "is"):
            value = str(value)
        if operator in ("<", "<=", ">", ">=") and isinstance(value, bool):
            value = 1
        field = Field(draw(st.sampled_from([Level.ANY, Level.SPAN])), "k")
        if operator == "exists":
            filters.append(Exists(field))
        elif operator in ("in", "not in"):
            filters.append(OneOf(field, (value, draw(plain)), operator == "not in"))
        else:
            filters.append(Compare(field, operator, value))
    return request, filters


@SOME
@given(near())
def test_values_that_look_alike_keep_apart(made: tuple[ExportTraceServiceRequest, list[Filter]]) -> None:
    request, filters = made
    checked(request, *filters)


@pytest.mark.slow
@MANY
@given(near())
def test_values_that_look_alike_keep_apart_over_and_over(made: tuple[ExportTraceServiceRequest, list[Filter]]) -> None:
    request, filters = made
    checked(request, *filters)


# -- text and back ---------------------------------------------------------------------------------------------------


def written(filter: Filter) -> str:
    """A filter as text."""
    match filter:
        case And(terms):
            return "(" + " and ".join(map(written, terms)) + ")"
        case Or(terms):
            return "(" + " OR ".join(map(written, terms)) + ")"
        case Not(term):
            return "not " + written(term)
        case Exists(field):
            return written_field(field) + " exists"
        case OneOf(field, listed, negated):
            return f"{written_field(field)} {'not ' * negated}in ({', '.join(written_value(field, one) for one in listed)})"
        case Compare(field, operator, value):
            return f"{written_field(field)} {operator} {written_value(field, value)}"


def written_field(field: Field) -> str:
    if field == EVENT_NAME:
        return "event.name"
    if field.level is Level.COLUMN:
        return field.name
    return ("" if field.level is Level.ANY else field.level.value + ".") + quoted(field.name)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written_value(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value.lower() if field.type in (Type.KIND, Type.STATUS) else quoted(value)
    if field.type is Type.DURATION:
        return f"{value}ns"
    return repr(value)


def is_writable(filter: Filter) -> bool:
    match filter:
        case And(terms) | Or(terms):
            return all(map(is_writable, terms))
        case Not(term):
            return is_writable(term)
        case OneOf(_, listed, _):
            return all(
                not isinstance(one, Fraction) and (not isinstance(one, int) or abs(one) < 10**30) for one in listed
            )
        case Compare(_, _, value):
            return not isinstance(value, Fraction) and (not isinstance(value, int) or abs(value) < 10**30)
    return True


@SOME
@given(filters.filter(is_writable))
def test_a_filter_written_down_is_read_as_itself(filter: Filter) -> None:
    assert parse_filter(written(filter)) == filter


ALL = Field(Level.ANY, "k")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", And(())),
        ("  ", And(())),
        ('service = "a"', Compare(FIELDS["service"], "=", "a")),
        ("service='it\\'s'", Compare(FIELDS["service"], "=", "it's")),
        ("name = 'x'", Compare(FIELDS["operation"], "=", "x")),
        ("k = 1", Compare(ALL, "=", 1)),
        ("k = 1.0", Compare(ALL, "=", 1.0)),
        ("k=-1e3", Compare(ALL, "=", -1000.0)),
        ("k = TRUE", Compare(ALL, "=", True)),
        ("http.status_code >= 500", Compare(Field(Level.ANY, "http.status_code"), ">=", 500)),
        ("span.service = 'x'", Compare(Field(Level.SPAN, "service"), "=", "x")),
        ('span."a b.c" exists', Exists(Field(Level.SPAN, "a b.c"))),
        ("event.name = 'exception'", Compare(EVENT_NAME, "=", "exception")),
        ('event."name" = 1', Compare(Field(Level.EVENT, "name"), "=", 1)),
        ("scope = 'a' and scope.a = 'b'", And((Compare(FIELDS["scope"], "=", "a"), Compare(Field(Level.SCOPE, "a"), "=", "b")))),
        ("duration > 1.5ms", Compare(FIELDS["duration"], ">", 1_500_000)),
        ("duration < 0.5ns", Compare(FIELDS["duration"], "<", Fraction(1, 2))),
        ("duration in (1s, 2m, 1h)", OneOf(FIELDS["duration"], (10**9, 120 * 10**9, 3600 * 10**9))),
        ("start >= '1970-01-01T00:00:01.000000001Z'", Compare(FIELDS["start"], ">=", 1_000_000_001)),
        ("start >= '1970-01-01T02:00:00+02:00'", Compare(FIELDS["start"], ">=", 0)),
        ("end < 5", Compare(FIELDS["end"], "<", 5)),
        ("kind = Server and status != error", And((Compare(FIELDS["kind"], "=", "SERVER"), Compare(FIELDS["status"], "!=", "ERROR")))),
        ("error", Compare(FIELDS["error"], "=", True)),
        ("not error and root", And((Not(Compare(FIELDS["error"], "=", True)), Compare(FIELDS["root"], "=", True)))),
        ("a = 1 or b = 2 and c = 3", Or((Compare(Field(Level.ANY, "a"), "=", 1), And((Compare(Field(Level.ANY, "b"), "=", 2), Compare(Field(Level.ANY, "c"), "=", 3)))))),
        (r'k =~ "\d+"', Compare(ALL, "=~", r"\d+")),
        (r'k = "a\nb\u00e4"', Compare(ALL, "=", "a\nbä")),
        ("text ~ 'time out'", Compare(TEXT, "~", "time out")),
        ("trace_id = '00000000000000AB'", Compare(FIELDS["trace_id"], "=", "000000000000000000000000000000ab")),
    ],
)  # fmt: skip
def test_reads(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("service", 8, "an operator"),
        ("service =", 10, "text in quotes"),
        ("service = 5", 11, "text in quotes"),
        ("service ! 5", 9, "a field, a value or an operator"),
        ("duration > 5", 12, "a duration such as 250ms"),
        ("duration > 5parsecs", 12, "a duration"),
        ("k = 'open", 5, "a closing '"),
        ("k = 1 k = 2", 7, "and, or, or the end"),
        ("(k = 1", 7, "')'"),
        ("k = 1)", 6, "and, or, or the end"),
        ("k in 1", 6, "'('"),
        ("k in ()", 7, "text in quotes, a number"),
        ("k in (1 2)", 9, "')'"),
        ("and k = 1", 1, "a field"),
        ("k = 1 and", 10, "a field"),
        ("k not 1", 7, "in after not"),
        ("k < true", 3, "= or !="),
        ("kind = 'table'", 8, "a kind"),
        ("error ~ 'x'", 7, "an operator for error"),
        ("service ~ 'x'", 9, "an operator for service"),
        ("text = 'x'", 6, "an operator for text"),
        ("span. = 1", 6, "an attribute key after span."),
        ("k = 1e999", 5, "text in quotes, a number"),
        ("span_id = 'xyz'", 11, "an id in hexadecimal"),
        ("k =~ '('", 6, "not a valid RE2 regular expression"),
        ("k =~ '(?=x)'", 6, "not a valid RE2 regular expression"),
        ("k = '\ud800'", 6, "text that UTF-8 can encode"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_was_expected(text: str, place: int, expected: str) -> None:
    with pytest.raises(CallerError) as error:
        parse_filter(text)
    assert f"at character {place}:" in error.value.message
    assert expected in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "k=1" + ")" * 5_000,
        "not " * 5_000 + "k=1",
        " and ".join(["k=1"] * 101),
        f"k in ({','.join(['1'] * 1_001)})",
        "k = '" + "x" * 100_000 + "'",
        "k = " + "9" * 5_000,
        "trace_id = 'zz'",
        "start > 'yesterday'",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_too_large_or_no_value_is_refused(text: str) -> None:
    with pytest.raises(CallerError):
        parse_filter(text)


WORDS = re.split(" ", "service k = != ( ) , . and or not in exists 1 5ms ~ =~ error text span. event.name true -")


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from([*WORDS, "'a'", '"b"']), max_size=12).map(" ".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(CallerError):
        condition_sql(parse_filter(text))


# -- meaning ---------------------------------------------------------------------------------------------------------


def test_a_missing_attribute_meets_nothing_but_a_not() -> None:
    request = request_of(span(1, 1, attributes={"a": 1, "s": "x"}), span(1, 2, attributes={"a": 10}))
    texts = [
        "a = 1",
        "a != 1",
        "a != '1'",
        "s = 'x'",
        "s != 'y'",
        "not s = 'x'",
        "s not in ('y')",
        "s exists",
        "a > 1",
        "a = '1'",
    ]
    assert checked(request, *map(parse_filter, texts)) == [
        [True, False], [False, True], [True, True], [True, False], [True, False], [False, True], [True, False], [True, False],
        [False, True], [False, False],
    ]  # fmt: skip


def test_attributes_are_found_at_each_level() -> None:
    request = request_of(
        span(1, 1, attributes={"own": "a"}, events=[{"name": "boom", "attributes": [attribute("at", 3)]}])
    )
    request.resource_spans[0].resource.attributes.append(attribute("host", "h"))
    request.resource_spans[0].scope_spans[0].scope.attributes.append(attribute("lib", True))
    one = request.resource_spans[0].scope_spans[0].spans[0]
    one.links.add(trace_id=trace_id(2), span_id=span_id(9)).attributes.append(attribute("why", "retry"))
    for text in ("own = 'a'", "span.own = 'a'", "host = 'h'", "resource.host = 'h'", "lib = true", "scope.lib = true",
                 "event.at = 3", "event.name = 'boom'", "link.why = 'retry'", "resource.service.name = 'shop'"):  # fmt: skip
        assert checked(request, parse_filter(text)) == [[True]], text
    for text in (
        "resource.own = 'a'",
        "span.host = 'h'",
        "at = 3",
        "why = 'retry'",
        "event.own = 'a'",
        "scope.host = 'h'",
    ):
        assert checked(request, parse_filter(text)) == [[False]], text


def test_words_are_found_in_any_case_in_blob_input_and_output() -> None:
    request = request_of(span(1, 1, name="GET /Cart", attributes={"input.value": "What is Łódź?", "note": "a|b"}))
    for text in ("cart get", "ŁÓDŹ", "NOTE=A|B", "shop", "what"):
        assert checked(request, Compare(TEXT, "~", text)) == [[True]], text
    for text in ("cart nowhere", "a|c"):
        assert checked(request, Compare(TEXT, "~", text)) == [[False]], text
    assert checked(request, parse_filter('text contains "is Łódź"'), parse_filter('text contains "IS"')) == [
        [True],
        [False],
    ]


@pytest.mark.parametrize("number", [0, 1, -1, 1.0, 1e22, 2**63 - 1, 10**400], ids=str)
def test_a_text_never_equals_a_number_unless_asked_as_text(number: float) -> None:
    text = str(number)[:200]
    request = request_of(span(1, 1, attributes={"k": text}))
    assert checked(request, Compare(ALL, "=", number), Compare(ALL, "is", text)) == [[False], [True]]


def test_conditions_that_prune_are_those_that_every_match_meets() -> None:
    found = pruning_conditions(
        parse_filter("service = 'a' and (k = 1 or service = 'b') and start >= 5 and duration < 2ns and error")
    )
    assert [(one.column, one.operator, one.values) for one in found] == [
        ("service_name", "=", ("a",)), ("start_ns", ">=", (5,)), ("duration_ns", "<", (2,)), ("status_code", "=", (2,)),
    ]  # fmt: skip
    assert pruning_conditions(parse_filter("not service = 'a' or error")) == []
