"""What an expression of each kind can be: templates over expressions of other kinds, and constants."""

from __future__ import annotations

import re

from sql_made_tables import DAY, LIST, MAP, MOMENT, NUMBER, STRUCT, TEXT, TRUTH

SPAN, MONTHS = "span", "months"  # intervals of days and times, of years and months
LEAST = {
    NUMBER: "1", TEXT: "'a'", DAY: "date '2020-02-29'", MOMENT: "timestamp '2020-02-29 12:00:00'", TRUTH: "true",
    LIST: "array(1)", MAP: "map('a', 1)", STRUCT: "named_struct('p', 1, 'q', 'a')", SPAN: "interval 1 day", MONTHS: "interval 1 month",
}  # fmt: skip
# Templates that have no rule, or that fail for most values.
ONLY_SPARK = re.compile(
    r"->|\(\+ |months_between|timestamp(diff|add)|try_add|typeof|initcap|array_max|split\(|rlike|like any|is true|is distinct"
    r"|position|trim\(leading|by\(|approx|(cast|concat)\(\{\} as string\)', 'list'|sort_array|slice|map_concat|'(span|months)'|substring\(\{\} from"
    r"|\{\} = \{\}\) \('(list|struct)|struct\(\{\} as|\('text', 'number'\)|div|%|_add|date_part"
)
SCALARS = (NUMBER, TEXT, DAY, MOMENT, TRUTH)
CONSTANTS = {
    NUMBER: ["0", "1", "-1", "2", "7", "1.5", "-0.25", "100", "3.00", "2L", "1e1", "- 3", "null"],
    TEXT: ["''", "'a'", "'ab'", "'%'", "'ü'", "' '", '"b"', "null"],
    DAY: ["date '2020-02-29'", "date '1969-12-31'"],
    MOMENT: ["timestamp '2020-02-29 12:00:00'", "timestamp '1970-01-01 00:00:00.5'"],
    TRUTH: ["true", "false", "null"],
    LIST: ["array(1, 2)", "array(null, 3)"],
    MAP: ["map('a', 1, 'b', null)"],
    STRUCT: ["named_struct('p', 1, 'q', 'a')", "named_struct('p', null, 'q', 'b')"],
    SPAN: ["interval 1 day", "interval '1 02:03:04' day to second", "interval 90 minutes", "interval -3 hours"],
    MONTHS: ["interval 1 month", "interval '1-2' year to month", "interval -1 year"],
}
TEMPLATES: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    NUMBER: [
        *((f"({{}} {sign} {{}})", (NUMBER, NUMBER)) for sign in ("+", "-", "*", "/", "%", "div")),
        ("(- {})", (NUMBER,)), ("(+ {})", (NUMBER,)), ("abs({})", (NUMBER,)), ("{} & {}", (NUMBER, NUMBER)), ("({} | {})", (NUMBER, NUMBER)), ("({} ^ 5)", (NUMBER,)), ("(~ {})", (NUMBER,)), ("sqrt(abs({}))", (NUMBER,)),
        ("coalesce({}, {})", (NUMBER, NUMBER)), ("nullif({}, {})", (NUMBER, NUMBER)), ("nvl({}, {})", (NUMBER, NUMBER)), ("if({}, {}, {})", (TRUTH, NUMBER, NUMBER)),
        ("case when {} then {} else {} end", (TRUTH, NUMBER, NUMBER)), ("case when {} then {} end", (TRUTH, NUMBER)), ("case {} when {} then {} when 2 then {} end", (NUMBER, NUMBER, NUMBER, NUMBER)),
        ("length({})", (TEXT,)), ("instr({}, 'a')", (TEXT,)), ("ascii({})", (TEXT,)), ("locate({}, {})", (TEXT, TEXT)), ("position('a' in {})", (TEXT,)),
        ("year({})", (DAY,)), ("month({})", (DAY,)), ("dayofweek({})", (DAY,)), ("hour({})", (MOMENT,)), ("extract(day from {})", (DAY,)), ("date_part('minute', {})", (MOMENT,)),
        ("unix_seconds({})", (MOMENT,)), ("datediff({}, {})", (DAY, DAY)), ("months_between({}, {})", (DAY, DAY)), ("timestampdiff(hour, {}, {})", (MOMENT, MOMENT)),
        ("round({}, 1)", (NUMBER,)), ("round({})", (NUMBER,)), ("ceil({})", (NUMBER,)), ("floor({})", (NUMBER,)), ("sign({})", (NUMBER,)), ("greatest({}, {})", (NUMBER, NUMBER)), ("pmod({}, 3)", (NUMBER,)),
        ("cast({} as int)", (NUMBER,)), ("cast({} as bigint)", (NUMBER,)), ("cast({} as double)", (NUMBER,)), ("cast({} as decimal(12,3))", (NUMBER,)), ("{} :: smallint", (NUMBER,)),
        ("try_cast({} as int)", (TEXT,)), ("try_cast({} as smallint)", (NUMBER,)), ("weekofyear({})", (DAY,)), ("map_values({})[0]", (MAP,)), ("cast({} as int)", (TRUTH,)), ("try_add({}, {})", (NUMBER, NUMBER)),
        ("size({})", (LIST,)), ("{}[0]", (LIST,)), ("element_at({}, 1)", (LIST,)), ("array_max({})", (LIST,)), ("get({}, 1)", (LIST,)), ("element_at({}, 'a')", (MAP,)), ("{}['b']", (MAP,)),
        ("{}.p", (STRUCT,)), ("aggregate({}, 0, (acc, v) -> acc + coalesce(v, 0))", (LIST,)), ("cardinality({})", (MAP,)),
    ],
    TEXT: [
        ("({} || {})", (TEXT, TEXT)), ("upper({})", (TEXT,)), ("lower({})", (TEXT,)), ("trim({})", (TEXT,)), ("trim(leading 'a' from {})", (TEXT,)), ("substring({}, 2, 2)", (TEXT,)),
        ("substring({} from 2)", (TEXT,)), ("left({}, 2)", (TEXT,)), ("right({}, 1)", (TEXT,)), ("replace({}, 'a', {})", (TEXT, TEXT)), ("lpad({}, 3, '*')", (TEXT,)), ("md5({})", (TEXT,)),
        ("coalesce({}, {})", (TEXT, TEXT)), ("case when {} then {} else {} end", (TRUTH, TEXT, TEXT)), ("cast({} as string)", (NUMBER,)), ("cast({} as string)", (DAY,)),
        ("cast({} as string)", (MOMENT,)), ("cast({} as string)", (TRUTH,)), ("cast({} as string)", (LIST,)), ("concat_ws('-', {}, {})", (TEXT, TEXT)), ("greatest({}, {})", (TEXT, TEXT)),
        ("nullif({}, {})", (TEXT, TEXT)), ("reverse({})", (TEXT,)), ("{}.q", (STRUCT,)), ("date_format({}, 'yyyy-MM')", (MOMENT,)), ("date_format({}, 'E d MMM HH:mm:ss.SSS')", (MOMENT,)), ("split_part({}, 'a', 2)", (TEXT,)), ("split({}, 'a')[0]", (TEXT,)), ("typeof({})", (NUMBER,)), ("initcap({})", (TEXT,)),
    ],
    DAY: [
        ("date_add({}, 3)", (DAY,)), ("date_sub({}, 40)", (DAY,)), ("last_day({})", (DAY,)), ("trunc({}, 'week')", (DAY,)), ("({} + {})", (DAY, MONTHS)), ("cast({} as date)", (MOMENT,)),
        ("coalesce({}, {})", (DAY, DAY)), ("if({}, {}, {})", (TRUTH, DAY, DAY)), ("least({}, {})", (DAY, DAY)), ("add_months({}, 1)", (DAY,)), ("to_date({})", (MOMENT,)),
    ],
    MOMENT: [
        ("date_trunc('hour', {})", (MOMENT,)), ("date_trunc('week', {})", (MOMENT,)), ("({} + {})", (MOMENT, SPAN)), ("({} - {})", (MOMENT, MONTHS)), ("({} + {})", (DAY, SPAN)),
        ("cast({} as timestamp)", (DAY,)), ("coalesce({}, {})", (MOMENT, DAY)), ("greatest({}, {})", (MOMENT, MOMENT)), ("timestampadd(day, 2, {})", (MOMENT,)),
    ],
    TRUTH: [
        *((f"({{}} {sign} {{}})", (kind, kind)) for kind in (NUMBER, TEXT, DAY, MOMENT) for sign in ("=", "<", ">=", "<>", "<=>", "!=")),
        ("({} = {})", (TEXT, NUMBER)), ("({} < {})", (DAY, MOMENT)), ("({} and {})", (TRUTH, TRUTH)), ("({} or {})", (TRUTH, TRUTH)), ("(not {})", (TRUTH,)),
        ("({} is null)", (NUMBER,)), ("({} is not null)", (TEXT,)), ("({} is true)", (TRUTH,)), ("({} is distinct from {})", (NUMBER, NUMBER)), ("({} between {} and {})", (NUMBER, NUMBER, NUMBER)),
        ("({} in ({}, {}))", (NUMBER, NUMBER, NUMBER)), ("({} not in ({}, null))", (TEXT, TEXT)), ("({} like 'a%')", (TEXT,)), ("({} ilike 'A%')", (TEXT,)), ("({} rlike '^a')", (TEXT,)),
        ("startswith({}, {})", (TEXT, TEXT)), ("contains({}, {})", (TEXT, TEXT)), ("isnan({})", (NUMBER,)), ("coalesce({}, {})", (TRUTH, TRUTH)), ("array_contains({}, 1)", (LIST,)),
        ("exists({}, v -> v > 1)", (LIST,)), ("({} = {})", (LIST, LIST)), ("({} = {})", (STRUCT, STRUCT)), ("({} like any ('a%', '%b'))", (TEXT,)), ("({} < {})", (SPAN, SPAN)),
    ],
    LIST: [("array({}, {})", (NUMBER, NUMBER)), ("transform({}, v -> v + 1)", (LIST,)), ("filter({}, v -> v > 1)", (LIST,)), ("concat({}, {})", (LIST, LIST)), ("sort_array({})", (LIST,)), ("slice({}, 1, 2)", (LIST,))],
    MAP: [("map({}, 1)", (TEXT,)), ("map_concat({}, map('z', 9))", (MAP,))],
    STRUCT: [("named_struct('p', {}, 'q', {})", (NUMBER, TEXT)), ("struct({} as p, {} as q)", (NUMBER, TEXT))],
    SPAN: [("({} - {})", (MOMENT, MOMENT)), ("({} - {})", (DAY, DAY)), ("({} * 2)", (SPAN,)), ("({} + {})", (SPAN, SPAN)), ("make_dt_interval(1, 2)", ())],
    MONTHS: [("({} * 3)", (MONTHS,)), ("make_ym_interval(1, 2)", ())],
}  # fmt: skip
AGGREGATES: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    NUMBER: [
        ("count(*)", ()), ("count({})", (NUMBER,)), ("sum({})", (NUMBER,)), ("avg({})", (NUMBER,)), ("min({})", (NUMBER,)), ("max({})", (NUMBER,)), ("count(distinct {})", (NUMBER,)), ("count(distinct {}, {})", (TEXT, NUMBER)),
        ("sum(distinct {})", (NUMBER,)), ("count_if({})", (TRUTH,)), ("sum({}) filter (where {})", (NUMBER, TRUTH)), ("count({}) filter (where {})", (TEXT, TRUTH)), ("max_by({}, id)", (NUMBER,)), ("approx_count_distinct({})", (NUMBER,)), ("stddev({})", (NUMBER,)), ("var_pop({})", (NUMBER,)),
    ],
    TEXT: [("min({})", (TEXT,)), ("max({})", (TEXT,))],
    TRUTH: [("bool_and({})", (TRUTH,)), ("some({})", (TRUTH,)), ("every({})", (TRUTH,))],
    DAY: [("min({})", (DAY,)), ("max({})", (DAY,))],
    MOMENT: [("min({})", (MOMENT,)), ("max({})", (MOMENT,))],
}  # fmt: skip
WINDOW_ONLY = [
    "row_number()",
    "rank()",
    "dense_rank()",
    "ntile(2)",
    "lag(id)",
    "lead(id, 2, -1)",
    "first_value(id)",
    "last_value(id)",
    "nth_value(id, 2)",
    "lag(id) ignore nulls",
    "last_value(id) ignore nulls",
    "percent_rank()",
    "cume_dist()",
]
FRAMES = [
    "",
    " rows between 2 preceding and 1 following",
    " rows between unbounded preceding and current row",
    " range between 1 preceding and current row",
    " rows between unbounded preceding and unbounded following",
]
