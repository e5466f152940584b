"""The statements that all engines must answer alike, by subject.

SERVED are answered by the fast engines too. STOPPED compile, and then meet a value that only Spark can answer.
FAILING end with an error everywhere. UNPROVED have no rule yet: moving one to SERVED is progress, the other way a loss.
Many expressions stand in one statement, since Spark takes a quarter of a second for each.
"""

from __future__ import annotations

V, K, ORDERS, EMPTY = "eq.s.v", "eq.s.k", "eq.s.o", "eq.s.e"


def columns(table: str, expressions: str, where: str = "") -> str:
    """A statement of many expressions, one a line, over a table with a number for each row."""
    listed = ", ".join(line.strip().rstrip(",") for line in expressions.strip().splitlines())
    return f"select id, {listed} from {table}" + (f" where {where}" if where else "")


SERVED: dict[str, list[str]] = {
    "own functions": [
        "select id, match_attr(s, 'a', 'b') as m, match_attr('|k=v|', x, y) as n from eq.s.v",
        "select match_attr('|a\\\\p=b|c=d|', 'a|', 'b') as bar, match_attr('|c=d|', 'c', 'd') as plain, match_attr(cast(null as string), 'c', 'd') as nothing",
    ],
    "types": [
        "select * from eq.s.v",
        columns(
            V,
            "cast(q as int), cast(q as tinyint), cast(q as bigint), cast(w as bigint), cast(m as bigint), cast(q as decimal(5,2)), cast(q as decimal(10,6)), cast(m as decimal(20,5)), cast(m as double), cast(q as double), cast(a as decimal(5,1)), cast(b as decimal(38,10)), cast(a as double), cast(i64 as double), cast(i64 as decimal(20,0)), cast(a as tinyint), cast(a as smallint), cast(a as bigint), cast(z as string), cast(i64 as string), cast(m as string), cast(n as string), cast(q as string), cast(w as string), cast(d as string), cast(t as string), cast(f32 as double), cast(g as int), cast(g as bigint), cast(g as tinyint), cast(x as string), cast(a as int), cast(t as date), cast(d as timestamp), cast(d as date)",
        ),
        columns(
            V,
            "int(q), string(a), bigint(a), double(a), date(t), to_date(t), date(d), cast(a as bigint) + 1, cast(a as decimal(10,2)) + 1, cast(a + 1 as string), cast(st.p as bigint) as sp, st.p + 1 as sp1",
        ),
        "select cast(c as int) as r, cast(c as bigint) as b from (values ('1'), ('-20'), ('+3'), ('007'), (null)) as v(c)",
        "select cast(c as tinyint) as r, cast(c as smallint) as s from (values ('127'), ('-128')) as v(c)",
        "select cast(c as date) as r from (values ('2020-02-29'), ('0001-01-01'), ('9999-12-31'), (null)) as v(c)",
        "select cast('12' as string) as a0, cast('2020-02-29' as date) as a4, cast('2020-01-01 10:00:00' as timestamp) as a5, cast(null as int) as a6, cast(null as string) as a7, cast(1 as string), cast(1.50 as string), cast(0.25 as string), cast(-0.25 as string) as neg, cast(true as string), cast('2020-01-01' as timestamp) as a8, date '2020-01-01', timestamp '2020-01-01 00:00:00', cast(date '2020-02-01' as timestamp) as a9",
        "select id, cast(f64 as bigint) from eq.s.v where f64 < 1e10 and f64 > -1e10",
    ],
    "arithmetic": [
        columns(
            V,
            "a + b, a - b, a * 3, b * a, a / 2, b / 3, a div 2, b div 3, a % 3, b % 7, mod(b, 4), -a, -b, abs(a), abs(b), abs(f64), abs(f32), -f64, -m, abs(m), abs(n), i16 div 7, i8 % 5, a + 1L as c1, a + i8, i16 + a, i64 / 3, i32 / 7, i8 / 4, 7 / a",
            "a <> 0",
        ),
        columns(
            V,
            "g + 1, g * 2, g - a, g / 2, g / 3.0, g + m, g * b, 1 / g, g / g, g + q, g * 1.5D as c, f32 + f32, f32 * f32, f32 - f32, -f32",
            "g <> 0",
        ),
        columns(
            V,
            "f32 > 1, f32 + 1, f32 * 2.5, f32 = 0.1, f32 + f64, f32 / 2, f32 * a, f32 + m, f32 - i8, f32 = a, f32 < m, greatest(f32, 1), coalesce(f32, a), f32 in (1.25, 0.5), f32 between 0 and 1",
        ),
        columns(V, "~a, a & 3, a | 4, a ^ 1, a & b, ~i8, i8 & a, i64 | 1, (a & 3) | 4, a & 3 + 1, a + 1 & 3, i16 ^ i8"),
        columns(V, "f64 + 1, f64 * 2, f64 - f64, f64 * 0, f64 + f64, f64 / 2, i16 - i16, i8 * 1, i32 + 0L as l0"),
        "select id, 1 / f64 from eq.s.v where f64 <> 0",
        columns(
            V,
            "m + q, m - q, m + 1, 1 - m, m * 2, m + a, m + b, q + i8, q * i16, w + 1, w + m, w - q, m / 3, m / q, q / m, w / 7, 1 / m, m / a, n / 3, n / m, 10.5 / m, m / 0.3, n / q",
            "m <> 0 and q <> 0 and a <> 0 and abs(n) < 1000 and m < 1000",
        ),
        columns(V, "m * q, m * m * q, w * q, q * q * q, m * a", "abs(m) < 1000 and abs(w) < 1000"),
        columns(
            V,
            "n * n, n * m, n * q, n * n * q as nnq, n * w, n + m, n - q, n * a, cast(m as decimal(35,20)) * 100 as c, cast(m as decimal(38,18)) + cast(q as decimal(38,20)) as s38, cast(q as decimal(38,18)) - cast(q as decimal(30,20)) as d38",
            "abs(n) < 1000000000 and abs(m) < 100 and abs(w) < 1000",
        ),
        columns(
            V,
            "m % 3, m % q, q % m, n % m, w % 7, m % a, a % m, -m % 3 as n1, q % 0.3, n % 0.0000000003 as n2",
            "m <> 0 and q <> 0 and a <> 0",
        ),
        "select c * d as p from (select cast(c as decimal(38,20)) as c, cast(d as decimal(38,12)) as d from values (0.00000000000000000005, 0.1), (0.00000000000000000015, 100), (-0.00000000000000000015, 100), (1.50000000000000000050, 3.000001) as t(c, d))",
        columns(
            V,
            "round(m, 1), round(m), round(q, 2), round(n, 5), round(n), round(w), ceil(m), floor(m), ceil(q), floor(q), ceiling(w), ceil(w), floor(w), ceil(n), floor(n), ceil(g), floor(g), ceiling(g), sign(a), signum(b), sign(i8), round(f64), round(f64, 1), round(g, 1), round(g), round(a / 7, 2), round(i64 / 3, 2), round(a), round(b, 2), ceil(a), floor(i64), ceiling(i8)",
        ),
        "select round(x, 2), round(x, 0), round(x, 6), round(x, 15) from values (1.005D), (2.675D), (0.5D), (1.5D), (2.5D), (-0.5D), (-2.5D), (1e15D), (123456789012.345D), (0.045D), (0.004999999D), (0.005D), (-0.001D), (9007199254740993D), (1e22D), (1e308D), (0.1D), (cast(null as double)) as t(x)",
        "select 1, 1.5, -1, - 2, 1 + 1, 2 * 3.5, 10 / 4, 7 div 2, 7 % 4, -7 % 4, 100 * 1.1, 0.1 + 0.2, 1.10, 1e3, 2L as l, 1.5D as d, 3S as s, 4Y as y, -2147483648, -9223372036854775808, - 1.5, -0.0, - 0, -0.0D as nz, 2147483648, 9223372036854775807, 9223372036854775808, 0.10, .5, 12345678901234567890.12345",
    ],
    "comparisons": [
        columns(
            V,
            "f64 = f64, f64 > 1, f64 < 0, f64 >= 0, f64 <> 0, f64 = 0, f64 <=> null, f64 < f32, f64 = f32, f64 between 0 and 1, f64 in (0, 1.5D) as c1, f64 in (1.5, 2), f64 = -0.0D as nz, f64 not in (1.5D, null) as nin, isnan(f64), isnan(f32), isnull(f64), isnotnull(f64), f64 > 1e308 as big, f64 <=> 0, f64 <=> f64, f64 = 1.5, f64 > m, f64 < b, f64 > 1e3, f32 = f32",
        ),
        columns(
            V,
            "a > 1.5 as c1, a >= 1.5 as c2, a < 1.5 as c3, a <= 1.5 as c4, 1.5 < a as c5, 2.5 >= a as c6, a = 1.0, a = 1.5, i8 > 1000.5 as c7, a <> 1.5, a between 0.5 and 1.5, a in (1.0, 2.5), a in (1, 2.0), m = 12.5, m > 12.505, m = 9999999999999.99, q < 1, q > m, m < a, m = b, w > m, n < 0, i8 < i16, i8 = 127, i8 > 1000, i16 = b, i64 > 9223372036854775806, i64 = b, n > m",
        ),
        columns(
            V,
            "d = '2020-02-29', d >= date '2000-01-01', d < t, t = d, t > '2000-01-01', t >= '2020-02-29 12:30:45.123456', t < timestamp '1970-01-01 00:00:00', x = 'abc', x < y, x >= '', x <> y, bin = bin, bin is null, x <=> y, a <=> b, m <=> q, '2000-01-01' < d, date '2000-01-01' <= t",
        ),
        columns(
            V,
            "a = 1, a <> 1, a != 2, a <=> null, a <=> 1, a is null, a is not null as n1, a between 1 and 2, a not between 0 and 1, a in (1, 2), a in (1, null), a not in (1, null), not z, z and a > 0, z or a > 0, z and null as zn, z or null as zo, z = true, z <> false, a > 0 and b > 0 and z, a > 0 or b > 0 or z, not (a > 0 and z), z is null, st is null, l is not null as n2, isnull(a), isnotnull(x)",
        ),
        columns(
            V,
            "not a > 1, not (a > 1), (a), ((a + 1)), -(-a), (a > 1) = z, (a = b) is null, a > 1 and (b > 1 or z), a in (b), x in ('a', 'abc'), x between 'a' and 'b', a not in (1), a == b, not a is null as nn",
        ),
    ],
    "like": [
        columns(
            V,
            r"x like 'a%' as c1, x like 'a\\%c' as c2, x like 'a\\_c' as c3, x like '%\\\\%' as c4, x like '_' as c5, x like '' as c6, x like '%' as c7, x like 'a_c' as c8, x not like '%b%' as c9, x like 'a!%c' escape '!' as c10, x like '100%%' as c11, x like '%''%' as c12, x like '%\t' as c13, x like '%\%' as c14, s like '_x%', s like 'a%', s like '__語', s like '%😀', x like 'a%', x not like 'a%'",
        ),
        r"select id from eq.s.v where x like 'a\\%%' order by id",
    ],
    "text": [
        columns(
            V,
            "length(x), upper(x), lower(x), trim(x), ltrim(x), rtrim(x), reverse(x), substring(x, 2, 2), left(x, 2), right(x, 2), concat(x, y), x || y, x || y || x, replace(x, 'a', 'b'), ascii(x), lcase(x), ucase(x), char_length(x), character_length(x), len(x), octet_length(x), md5(x), sha2(x,256), sha2(x,0), repeat(x,3), repeat(x,0), lpad(x,5,'ab'), rpad(x,5,'ab'), lpad(x,2,'*'), rpad(x, 0, '*'), startswith(x,y), endswith(x,y), contains(x,y), concat_ws('-',x,y), concat_ws(y,x,'c',x), substr(x,3), substr(x, 1, 0), substring(x from 2 for 3), instr(x, 'b'), locate('b', x), instr(x,'ab'), concat(x)",
        ),
        columns(
            V,
            "length(s), trim(s), substring(s, 2, 2), left(s, 2), right(s, 2), concat(s, y), replace(s, 'a', 'ü'), len(s), octet_length(s), md5(s), sha2(s,256), repeat(s,3), lpad(s,5,'日b'), rpad(s,5,'😀'), lpad(s,2,'*'), rpad(s, 0, '*'), startswith(s,y), endswith(s,y), contains(s,y), concat_ws('-',s,y), s < x, s > y, s = x, greatest(s,x,y), least(s,x,y), instr(s, '語'), locate('x', s)",
        ),
        r"""select 'it''s' as q, "dq" as s, 'a\nb' as r, 'tab\t' as u, '' as v, "it's" as w, 'say "x"' as x1, 'back\\slash' as y1, 'x', 'a' || 'b', 'a' < 'b', true""",
    ],
    "dates and times": [
        columns(
            V,
            "year(d), month(d), day(d), dayofmonth(d), quarter(d), dayofweek(d), dayofyear(d), last_day(d), date_sub(d, 3), datediff(d, date '2020-02-01'), date_diff(date '1960-01-01', d), trunc(d, 'month'), trunc(d, 'week'), trunc(d,'YEAR'), trunc(d,'quarter'), trunc(d,'mm'), extract(year from d) as ex1, extract(dow from d) as ex2, extract(doy from d) as ex3, extract(quarter from d) as ex4, extract(YEAR from d) as ex5, extract(Day from d) as ex6, extract(dayofweek from d) as ex7, d - 1, date_add(d, -5), d - interval '1' month as u1, d - interval 1 year as u2",
        ),
        columns(
            V,
            "d + interval 1 month as u1, d + interval '2' years as u2, date_add(d, i8), d + 1, d + interval 3 weeks as u3, d + interval 1 day as u4",
            "d < date '9000-01-01'",
        ),
        columns(
            V,
            "year(t), month(t), day(t), quarter(t), dayofweek(t), dayofyear(t), hour(t), minute(t), second(t), last_day(t), date_trunc('hour', t), date_trunc('week', t), date_trunc('YEAR', t), date_trunc('quarter',t), date_trunc('day',t), date_trunc('minute',t), date_trunc('second',t), date_trunc('month',t), unix_seconds(t), unix_millis(t), unix_micros(t), t - interval '2' day as v1, t - interval 1 month as w1, t - interval 3 hours as w2, extract(hour from t) as ex8, extract(minute from t) as ex9, extract(day from t) as ex10, extract(month from t) as ex11, extract(dayofweek from t) as ex12",
        ),
        "select date '2020-01-31' + interval 1 month as q, date '2020-01-01' + 5 as r, timestamp '2020-01-01 00:00:00' + interval 1 hour as s, date '2020-01-01' - interval 1 day as u",
        "select id, current_date() = current_date as c1, now() = current_timestamp() as c2, current_date() > d as c3, t < now() as c4, curdate() = current_date() as c5, t < current_timestamp as c6 from eq.s.v",
    ],
    "case and coalesce": [
        columns(
            V,
            "coalesce(a, b), coalesce(a, 0), nvl(x, y), ifnull(m, 0), ifnull(q, m), nullif(a, 1), nullif(x, ''), nullif(m, 0), nvl2(a, x, y), nvl2(x, 1, 2.5), greatest(a, b), least(m, q), greatest(d, date '2000-01-01'), least(t, d), greatest(i8, i16, a), coalesce(d, t), coalesce(null, a), if(a > 0, a, b), if(z, m, q), if(a is null, x, y), case when a > 0 then 1 when a < 0 then -1L else 0 end as c1, case a when 1 then 'one' when 2 then 'two' end, case when z then m else a end, case when z then d else t end, case when z then null else 1 end, coalesce(st, st), coalesce(f32, f64), greatest(a, 1.5), greatest(f64, f32), case when z then l end, nullif(f64, 0) as a6, nullif(f64, f64), coalesce(f64, 0), greatest(f64, g), if(a > 1, 'y', null), case when a = 1 then 'x' else 'y' end, case x when 'abc' then 1 end, coalesce(a, 1, 2)",
        ),
    ],
    "aggregates": [
        "select count(*), count(a), count(a, b), sum(a), sum(b), sum(m), sum(q), sum(w), sum(i8), sum(i16), avg(a), avg(b), avg(m), avg(q), avg(i8), mean(i16), min(x), max(x), min(s), max(s), min(d), max(d), min(t), max(t), min(f64), max(f64), min(f32), max(f32), min(z), max(z), min(bin), max(bin), min(n), max(q), count_if(z), bool_and(z), bool_or(z), every(z), any(z), some(z), max(distinct a), count(1), count(l), count(st), min(i64), max(i64), sum(n), avg(n), avg(w) from eq.s.v",
        "select count(distinct f64), count(distinct a, z), sum(distinct a), sum(distinct m) from eq.s.v",
        "select count(*) filter (where a > 0), sum(m) filter (where z), min(x) filter (where x <> ''), avg(a) filter (where b > 0), count(distinct a) filter (where z), count_if(z) filter (where a > 0), sum(a) filter (where a > 100) from eq.s.v",
        "select count(*), sum(w), max(v), avg(grp), count(distinct id) from eq.s.e",
        "select z, bit_and(a), bit_or(a), bit_xor(b), bit_and(i8), bit_xor(i64), bit_or(i16), any_value(z), first(z), last(z), first(z, true), first_value(z), last_value(z), any_value(z) ignore nulls from eq.s.v group by z",
        "select first(v), any_value(w), bit_and(grp) from eq.s.e",
    ],
    "floating sums": [
        "select z, sum(g) as sg, avg(g) as ag, sum(f32) as s32 from eq.s.v group by z",
        "select sum(g) as sg, avg(g) as ag, sum(f32) as s32, avg(f32) as a32, sum(f64) as s64, avg(f64) as a64 from eq.s.v",
        "select z, std(a), stddev(a), stddev_samp(g), stddev_pop(i8), variance(b), var_samp(q), var_pop(g), covar_pop(a, g), covar_samp(a, i8), corr(a, g), corr(a, b) from eq.s.v group by z",
        "select stddev(a), stddev_pop(a), var_samp(a), var_pop(a), covar_pop(a, a), covar_samp(a, a), corr(a, a), stddev(f64), variance(f32) from eq.s.v where id = 6",
        "select stddev(a), var_pop(g), covar_pop(a, b), corr(a, b), stddev_pop(f64) from eq.s.v where id < 0",
        "select id, stddev(a) over (order by id rows between 3 preceding and current row) as s, corr(a, b) over (partition by z) as c from eq.s.v",
    ],
    "grouping": [
        "select z, x, count(*), sum(a), avg(m) from eq.s.v group by z, x order by z, x",
        "select f64, count(*) c from eq.s.v group by f64 order by f64",
        "select distinct f64, f32 from eq.s.v",
        "select a + 1, count(*) from eq.s.v group by a + 1 order by a + 1 desc",
        "select a + 1 as k, count(*) from eq.s.v group by k order by 1",
        "select a as k, z, count(*) from eq.s.v group by 1, 2 order by 2, 1",
        "select A, sum(B) as total from eq.s.v group by a having sum(b) > 0 order by total desc, A",
        "select st.p, count(*) from eq.s.v group by st.p order by st.p",
        "select a, sum(a) + 1, max(a) - min(a), count(*) * 2 from eq.s.v group by a order by a",
        "select 'c' as k, count(*) from eq.s.v group by 'c'",
        "select 1 as k, count(*) from eq.s.v group by k",
        "select grp, count(*) from eq.s.k group by grp having grp not in (select id from eq.s.o where id < 1)",
        "select grp from eq.s.k group by grp having count(*) > (select 2)",
        "select a, sum(b) as total, total + 1 as more from eq.s.v group by a having total > 0 order by total * 2, a",
    ],
    "grouping sets": [
        "select a, z, sum(a), a + 1, coalesce(a, -99), grouping(a), grouping_id(a, z) + 1, grouping_id() from eq.s.v group by rollup(a, z) having grouping_id() <> 1 order by a, z, sum(a)",
        "select f64, f32, count(*), count(f64), grouping(f64) from eq.s.v group by cube(f64, f32) having count(*) > 1",
        "select z, a, x, count(distinct x), sum(a) filter (where z) from eq.s.v group by cube(z, (a, x))",
        "select z, a, count(*), grouping_id() from eq.s.v group by grouping sets (rollup(z, a), a, (a), (z, a))",
        "select z, a, count(*), grouping(a) from eq.s.v group by z, cube(a, z)",
        "select a + 1 as k, z, count(*) from eq.s.v group by k, z with rollup",
        "select z, a as k, count(*) from eq.s.v group by 1, 2 grouping sets ((1, 2), ())",
        "select grp, count(*), sum(w) from eq.s.e group by rollup(grp)",
        "select case when grouping(a) = 1 then 0 else 1 end as lo, a, rank() over (partition by grouping(a) + grouping(z), case when grouping(z) = 0 then a end order by sum(b) desc nulls last, z) as r from eq.s.v group by rollup(a, z) order by lo desc, case when lo = 0 then a end, a, r",
        "select z, a + 1, 1 as one, 'c', count(*) + 1, max(b) from eq.s.v group by all",
        "select count(*), max(grp) from eq.s.e group by all",
    ],
    "order and limit": [
        "select id from eq.s.v order by f64, id",
        "select id from eq.s.v order by f64 desc, f32 desc, id desc",
        "select id i, -a from eq.s.v order by -a desc, i limit 7 offset 3",
        "select id from eq.s.v order by z, t desc, id limit 10 offset 55",
        "select distinct a, z from eq.s.v order by z, a",
        "select distinct x from eq.s.v where x <> '' order by x limit 3",
        "select id, -a as b, b as a from eq.s.v order by b + 1, a, id",
    ],
    "windows": [
        "select id, row_number() over (partition by a order by b, id) as rn, rank() over (order by a desc) as rk, dense_rank() over (order by x nulls last) as dr, lag(b) over (order by id) as lg, lead(b, 2, 0) over (order by id) as ld, lag(x, 1, 'none') over (partition by z order by id) as lx, lead(m, 0) over (order by id) as l0, sum(b) over (partition by a order by id) as rs, avg(m) over (order by id rows between 2 preceding and current row) as am, count(*) over () as c, first_value(x) over (order by id) as fv, last_value(x) over (order by id rows between unbounded preceding and unbounded following) as lv, ntile(3) over (order by id) as nt, percent_rank() over (order by a) as pr, cume_dist() over (order by a) as cd, max(d) over (partition by z) as md, lag(a, 1, null) over (order by id) as ln, lead(m, 1, 0) over (order by id) as c2 from eq.s.v",
        "select id, sum(a) over (order by a) as c1, sum(a) over (order by a, id rows unbounded preceding) as c2, count(a) over (partition by z order by b range between unbounded preceding and current row) as c3, min(a) over (order by id rows between 1 following and 3 following) as c4, max(x) over (order by id rows between 3 preceding and 1 preceding) as c5, sum(m) over (partition by f64) as c6, count(*) over (partition by f64 order by f32) as c7, rank() over (partition by z order by f64 desc) as c8, avg(a) over (order by id rows between 1 preceding and 1 following) as c9, bool_or(z) over (order by id) as c10, count_if(z) over (order by id) as c11, first_value(a) over (partition by z order by id desc) as c12, min(f64) over (order by id rows between 1 preceding and 1 preceding) as c13, sum(a) over (order by id rows between current row and unbounded following) as c14, every(z) over (partition by a) as c15, mean(q) over (partition by z) as c16, any(z) over (order by id rows between 1 preceding and current row) as c17, some(z) over (partition by z) as c18, bool_and(z) over (order by id) as c19 from eq.s.v",
        "select id, sum(a) over w as c1, row_number() over w as c2 from eq.s.v window w as (partition by z order by id)",
        "select a, sum(sum(b)) over (order by a) as c1, rank() over (order by count(*) desc, a) as c2 from eq.s.v group by a",
        "select * from (select id, row_number() over (partition by z order by id) as rn from eq.s.v) where rn <= 2 order by id",
        "select id, first_value(a) ignore nulls over (order by id), last_value(x) ignore nulls over (order by id), lag(a) ignore nulls over (order by id), lead(a, 2) ignore nulls over (order by id), first(a) over (order by id), last(a) over (order by id), nth_value(a, 2) over (order by id), any_value(a) over (order by id), first_value(a, true) over (order by id) as f, last(a, true) over (order by id) as l, nth_value(a, 2) ignore nulls over (order by id) as n, first_value(a) respect nulls over (order by id) as r from eq.s.v",
        "select id, sum(a) over (order by id range between 3 preceding and current row), sum(a) over (order by a range between 1 preceding and 1 following) as c2, count(*) over (order by a desc range between 2 preceding and 1 preceding) as c3, count(*) over (order by b range between 5 preceding and 5 following) as c4, count(*) over (order by id range between 2 following and unbounded following) as c5, count(*) over (order by d range between interval 100 day preceding and current row) as c6, count(*) over (order by d range between 40 preceding and 40 following) as c7, count(*) over (order by t range between interval 1 day preceding and current row) as c8, count(*) over (partition by z order by t desc range between interval 2 hours preceding and interval 1 hour following) as c9 from eq.s.v",
        "select row_number() over (order by id desc), sum(a) over (order by id rows between 1 preceding and current row), lag(a) over (partition by z order by a nulls last, id desc), count(*) over (), lead(a, 2, 0) over (order by id), first_value(x) over (order by id), ntile(3) over (order by id), percent_rank() over (order by a, id), cume_dist() over (order by a, id), rank() over (order by a), dense_rank() over (order by x), max(d) over (partition by z, a + 1), lag(x, 1, 'none') over (order by id), lead(a, 0) over (order by id), sum(a) over (order by id rows 2 preceding), sum(b) over (partition by z order by id rows between 1 following and 3 following), count_if(z) over (order by id) from eq.s.v",
        "select a, sum(sum(b)) over (order by a), rank() over (order by count(*) desc, a) from eq.s.v group by a",
    ],
    "joins": [
        "select k.id, k.v, o.amount from eq.s.k k join eq.s.o o on o.id = k.id",
        "select k.id, o.order_id from eq.s.k k left join eq.s.o o on o.id = k.id and o.amount > 0",
        "select k.id, o.order_id from eq.s.k k full outer join eq.s.o o on o.id = k.id and k.w > 1",
        "select * from eq.s.k k left semi join eq.s.o o on o.id = k.id",
        "select * from eq.s.k k left anti join eq.s.o o on o.id = k.id and o.amount > 0",
        "select a.id, b.id as bid from eq.s.v a join eq.s.v b on a.f64 = b.f64 where a.id < 30",
        "select id, v, amount from eq.s.k join eq.s.o using (id)",
        "select id, k.v, o.amount from eq.s.k left join eq.s.o using (id)",
        "select k.id, o.order_id, v.x from eq.s.k join eq.s.o on k.id = o.id left join eq.s.v on v.id = o.order_id where o.amount is not null",
    ],
    "joins by names": [
        "select * from eq.s.k join eq.s.o using (id) left join eq.s.v using (id)",
        "select id, k.id as kid, o.id as oid, v, amount from eq.s.k right join eq.s.o using (id) where id > 3",
        "select o.*, k.*, id + 1 from eq.s.k full join eq.s.o using (id)",
        "select * from (select id, v, grp from eq.s.k) a left semi join (select grp, id from eq.s.k where id > 3) b using (grp, id)",
        "select * from (select id, v from eq.s.k) natural full outer join (select amount, id from eq.s.o)",
        "select * from (select id, v from eq.s.k) a full join (select cast(id as bigint) as id, amount from eq.s.o) b using (id) full join (select id, a from eq.s.v where id > 5) c using (id) cross join (select 1 as one)",
        "select * from (select f64, id from eq.s.v where id < 14) a natural join (select f64, a from eq.s.v where id > 40) b",
    ],
    "generated rows": [
        "select id * 2, (select max(id) from range(3)) as m from range(2, 8, 2) r union all select x, 1 from range(10, 0, -3) as t(x) union all select count(*), 2 from range(0)",
        "select id, x1, y1 from eq.s.v lateral view explode(l) e as x1 lateral view outer explode(ls) f as y1 where x1 > 1",
        "select id, e.*, pos, value from eq.s.v lateral view outer posexplode(mp) e",
        "select id, explode(l), a from eq.s.v where a > 0",
        "select id, explode(mp) as (k, v) from eq.s.v order by id, k",
        "select id, posexplode_outer(ls) as (p, x) from eq.s.v",
        "select distinct explode(array(a, b, null)) as e from eq.s.v",
        "select inline(array(named_struct('p', a, 'q', x), named_struct('p', 2, 'q', 'y'))) from eq.s.v",
        "select id, x1 from eq.s.k join eq.s.v using (id) lateral view explode(l) e as x1",
        "select explode(map('a', 1, 'b', 2))",
    ],
    "subqueries": [
        "select id, v from eq.s.k where id in (select id from eq.s.o)",
        "select id from eq.s.k where id not in (select id from eq.s.o where id is not null) and grp > 0",
        "select id from eq.s.k where (grp in (select id from eq.s.o)) and (id > 1 and not (grp in (select id from eq.s.o where id < 1)))",
        "select id from eq.s.k where exists (select 1 from eq.s.o where o.id = k.id and o.amount > 0)",
        "select id, exists (select * from eq.s.o where o.id = k.id) as e from eq.s.k",
        "select id, (select max(amount) from eq.s.o where o.id = k.id) as mb, (select count(*) from eq.s.o where o.id = k.id) as c, (select o.amount from eq.s.o where o.order_id = 3) as one from eq.s.k",
        "select (select max(id) from eq.s.k) + 1 as q, (select id from eq.s.e) as nothing",
        "select id from eq.s.k where grp in (select id from eq.s.o) or id = 3",
        "select id from eq.s.k k where grp not in (select id from eq.s.o where o.order_id = k.id + 3) or id = 20",
        "select id, grp in (select id from eq.s.o) as c, grp not in (select id from eq.s.o) as n, not (not (grp in (select id from eq.s.o))) as d, not (grp in (select id from eq.s.o) or id = 3) as f, not (grp in (select id from eq.s.o) and id = 3) as g, case when not (grp in (select id from eq.s.o where id > 3)) then 2 else 3 end as h, if(grp not in (select id from eq.s.e), 1, 0) as i from eq.s.k",
        "select id from eq.s.k where (id, grp) in (select order_id, id from eq.s.o)",
        "select id, (id, grp) not in (select cast(order_id as int), id from eq.s.o) as c, (id, grp) in (select cast(order_id as int), id from eq.s.o) as d, not ((grp, id) in (select id, grp from eq.s.e)) as e from eq.s.k",
    ],
    "with": [
        "with q as (select grp, sum(w) s from eq.s.k group by grp), r as (select * from q where s > 0) select r.grp, q.s from r join q on r.grp = q.grp",
        "with k as (select id from eq.s.k where id > 5) select k.id from k order by id",
        "with q as (select id from eq.s.k) select id from q where id in (with z as (select max(id) m from q) select m from z)",
    ],
    "set operations": [
        "select id from eq.s.k union select id from eq.s.o",
        "select id from eq.s.k union all select id from eq.s.o order by id limit 5",
        "select id from eq.s.o except select id from eq.s.k",
        "select id from eq.s.o except all select id from eq.s.k",
        "select f64 from eq.s.v union select f32 from eq.s.v",
        "(select id from eq.s.k order by id limit 2) union all (select id from eq.s.k order by id desc limit 2)",
    ],
    "values": [
        "values (1, 2.5), (3, null)",
        "select col1, col2 + 1 from values (1, 2L), (3, 4)",
    ],
    "shown names": [
        "select 1L, 1S, 2Y, 1.5D, -1L, -2Y, - 3L, 1e3D, 0.5D, 100D, 2L + 1, cast(1 as bigint), 1::bigint, cast(1.5 as int), cast(-1 as bigint), cast(1.5 as double), cast('a' as string), cast(1 as string) || 'x', 12345678901L, 1.0E10, 1E-5D, 123456789.123D, 1.5e-3, 1e7D, 12345678.9D, 0.001D, -2.5e20, 1E300, cast(null as int), cast('12' as int)",
        "select date '2020-01-01', timestamp '2020-01-01', timestamp '2020-01-01 00:00:00.5', timestamp '2020-01-01 10:00:00.123456', cast('2020-01-01' as date), date('2020-01-01'), to_date('2020-01-01'), cast('2020-01-01 10:00:00' as timestamp), timestamp('2020-01-01 10:00:00'), '2020-01-01'::date, date '2020-01-01' + 1, date '2020-01-01' + interval 1 day, timestamp '2020-01-01' - interval 2 hours, cast(date '2020-02-01' as timestamp)",
        "select a is not null, x is not null and z is not null, extract(year from d), extract(MONTH from d), extract(Day from t), x like 'a!%' escape '!' from eq.s.v",
        "select d + interval 1 month, d - interval 2 days, t + interval 1 hour, t - interval '3' minute, d + interval '1' year, d + interval '-1' month as back, concat(a, x), a || x, x || 1, concat(d, '-', z), concat(m, x), smallint(a), tinyint(i8), timestamp(d) from eq.s.v where d < date '9000-01-01' and t < timestamp '9000-01-01'",
        "select exists (select 1 from eq.s.o), (select max(id) from eq.s.o) from eq.s.k",
    ],
    "names": [
        "select id, `order`, `Größe` from eq.s.v order by `order`, `Größe`, id",
        "select x.p, x.q from (select id, v from eq.s.k) x(p, q) where p > 3",
        "select EQ.S.K.ID, `eq`.`s`.`k`.`v` from eq.s.k",
    ],
    "nested": [
        columns(
            V, "st.p, st.Q, st.q, ST.inner.r, v.st.inner, eq.s.v.st.inner.r as deep, st, l, ls, mp, size(l), size(ls)"
        ),
        "select id from eq.s.v where st.p > 0 and st.q = 'one'",
        columns(
            V,
            "mp['k'], mp['nope'], mp[x], mp[''], mp['k'] + 1, mp.k, mp.k + 1, st['p'], st['inner']['r'], st.inner['r'], st.p + 1, st.q || 'x', cast(st.p as bigint), v.st.inner.r * 2, element_at(mp, 'k'), try_element_at(mp, 'k'), try_element_at(l, 1), try_element_at(l, -1), try_element_at(l, 9), get(l, 0), get(l, 7), get(l, -1), get(ls, 1), get(l, a), size(mp), cardinality(l), array_size(ls), map_keys(mp), map_values(mp), map_contains_key(mp, 'k'), array_contains(l, 1), array_contains(l, 3), array_contains(ls, 'a'), array_contains(l, a)",
        ),
        columns(
            V,
            "l[0], l[size(l) - 1] as last, ls[0] as s0, element_at(l, 1), element_at(l, -1)",
            "size(l) > 0 and size(ls) > 0",
        ),
        "select array(1, a), array(a, b), array(x, 'q'), array(1, 2.5), array(null, 1), map('a', a), map(1, x, 2, y), named_struct('p', a, 'q', x), named_struct('p', 1).p, array(l, l), array(st), coalesce(l, array(1)) as c, if(z, map('a', 1), mp) as e from eq.s.v",
        "select mp['k'] as k, count(*), (select max(id) from eq.s.o) from eq.s.v where mp['k'] = 1 or l is null group by mp['k']",
    ],
}

# More of the same subjects, for the long run.
MORE: dict[str, list[str]] = {
    "comparisons": [
        "select id from eq.s.k where 1 = 1 and true",
        "select id from eq.s.k where id = null or false",
    ],
    "like": [
        "select id from eq.s.k where v like 'v1%' or v like '%w' order by id",
    ],
    "aggregates": [
        "select count(distinct f32), count(distinct x), count(distinct d), count(distinct m) from eq.s.v",
        "select count(*), sum(a), avg(m), min(x), max(d), count(distinct x), bool_or(z) from (select * from eq.s.v where id < 0)",
        "select v, count(*) from eq.s.e group by v",
    ],
    "grouping": [
        "select f32, count(*) c from eq.s.v group by f32 order by f32 desc",
        "select a, count(*) from eq.s.v group by a having count(*) > 5 and a > 0 order by a",
        "select count(*) as c from eq.s.v having count(*) > 1000",
        "select year(d) as y1, month(d), count(*) from eq.s.v group by year(d), month(d) order by y1, 2",
        "select case when a > 0 then 'p' else 'n' end as k, sum(m) from eq.s.v group by case when a > 0 then 'p' else 'n' end order by k",
        "select f64 + 0 as k, count(*) from eq.s.v group by f64 order by k",
        "select -f64 as k, count(*) from eq.s.v group by -f64 order by k",
        "select f64, g from eq.s.v group by f64, g order by f64 desc nulls first, g",
        "select t, d, bin, count(*) from eq.s.v group by t, d, bin order by t, d, bin",
    ],
    "order and limit": [
        "select id, x from eq.s.v order by x nulls last, id limit 20",
        "select id, s from eq.s.v order by s desc nulls first, id",
        "select id from eq.s.v order by a + b, id",
        "select id, a as b from eq.s.v order by b, id",
        "select id from eq.s.v order by 1 limit 0",
        "select id from eq.s.v order by id offset 57",
    ],
    "joins": [
        "select k.id, o.order_id from eq.s.k k right join eq.s.o o on o.id = k.id",
        "select k.id, e.id as eid, e.v from eq.s.k left join eq.s.e on k.id = e.id",
        "select count(*) from eq.s.k cross join eq.s.o",
        "select count(*) from eq.s.k, eq.s.o where k.id = o.id or k.grp = o.id",
        "select a.id, b.id as bid from eq.s.k a join eq.s.k b on a.grp <=> b.grp",
        "select a.id, b.id as bid from eq.s.v a join eq.s.v b on a.f32 = b.f64 where a.id < 30",
        "select a.id, b.id as bid from eq.s.v a join eq.s.v b on a.m = b.q",
        "select a.id, b.id as bid from eq.s.v a join eq.s.v b on a.d = b.t",
        "select k.id from eq.s.k left join eq.s.o on k.id = o.id where o.id is null",
    ],
    "subqueries": [
        "select id, v from eq.s.k where id not in (select id from eq.s.o)",
        "select id from eq.s.k where grp not in (select id from eq.s.e)",
        "select id from eq.s.k where not exists (select 1 from eq.s.o where o.id = k.id)",
        "select id from eq.s.k where (id, grp) not in (select cast(order_id as int), id from eq.s.o) or id = 3",
        "select id from eq.s.v where (f64, a) not in (select f64, a from eq.s.v where id > 55)",
        "select grp, count(*) from eq.s.k group by grp having grp in (select id from eq.s.o) or count(*) > 3",
        "select sum(case when grp in (select id from eq.s.o where id = 1) then 1 else 0 end) as s from eq.s.k",
        "select id from eq.s.k where w > (select avg(w) from eq.s.k i where i.grp = k.grp)",
        "select grp, count(*) from eq.s.k where id in (select id from eq.s.o where amount > (select avg(amount) from eq.s.o)) group by grp",
    ],
    "with": [
        "with a as (select id from eq.s.k), b as (with a as (select 7 as id) select id from a) select a.id, b.id as bid from a cross join b",
        "with q(n1, n2) as (select id, v from eq.s.k) select n2, n1 from q order by n1",
    ],
    "set operations": [
        "select id, w from eq.s.k intersect select id, amount from eq.s.o",
        "select id from eq.s.o intersect all select id from eq.s.o where amount > 0",
        "select a from eq.s.v union select m from eq.s.v",
        "select d from eq.s.v union select t from eq.s.v",
        "select id from eq.s.k except select id from eq.s.o union all select 5 order by id",
        "select id from eq.s.k union select 99 intersect select 99 order by id",
    ],
    "values": [
        "select * from (values (1, 'a'), (2, 'b')) as v(i, s)",
        "select * from values (1, 2), (3, 4) as t(p, q) order by p desc",
    ],
    "names": [
        "select ID, V.A, eq.s.v.x, s.v.z from eq.s.v order by id",
        "select v.*, a as again, a from eq.s.v order by id",
        "select id, x as `a b`, x as `ä`, x as X, x as `back``tick` from eq.s.v",
    ],
}

# Past versions and raw rows are never in memory: hot cannot serve these, local does.
LOCAL_ONLY = [
    "select * from eq.s.`__raw__k` order by id",
    "select * from eq.s.k version as of 1 order by id",
    "select * from eq.s.k timestamp as of '2999-01-01' order by id",
    "select a.id, b.v from eq.s.k version as of 1 a left join eq.s.k b on a.id = b.id",
]

STOPPED = [
    "select id, i32 % -1 as r, i64 % -1 as r2 from eq.s.v",
    "select id, floor(f64) from eq.s.v",
    "select id, m * q from eq.s.v",
    "select id, upper(s) from eq.s.v",
    "select cast(c as int) as r from (values ('1'), (' 20 ')) as v(c)",
    "select avg(i64) from eq.s.v",
    "select cast(q as decimal(38,20)) * cast(q as decimal(38,18)) as p from eq.s.v",
    "select round(x, 4) from values (0.00005D), (0.00004D) as t(x)",
    "select corr(f64, a) from eq.s.v",
    "select grp, first(v) as f from eq.s.k group by grp",
]

# What Spark refuses while it reads the statement costs no job: these are quick.
FAILING = [
    "select id, i64 div -1 as r from eq.s.v",
    "select id, -i32 from eq.s.v",
    "select id, abs(i8) from eq.s.v",
    "select id, i64 + 1 from eq.s.v",
    "select id, f64 / 0 from eq.s.v",
    "select id, a % 0 from eq.s.v",
    "select id, m / 0 from eq.s.v",
    "select id, m % 0 from eq.s.v",
    "select id, n * n from eq.s.v",
    "select corr(a, 1) from eq.s.v",
    "select id, l[0] as e from eq.s.v",
    "select map('a', 1, 'a', 2) as m",
    "select id, x from eq.s.v lateral view explode(l) e as x",
    "select id from eq.s.k natural join eq.s.o using (id)",
    "select id, element_at(l, 5) as e from eq.s.v where size(l) > 0",
    "select id, try_element_at(l, 0) as e from eq.s.v",
    "select id, count(*) over (order by i8 range between 1 preceding and current row) as c from eq.s.v",
    "select rank() over (order by id rows between 1 preceding and current row) as r from eq.s.v",
    "select grouping(a) as g, sum(b) from eq.s.v group by a",
    "select grouping_id(z, a) from eq.s.v group by rollup(a, z)",
    "select a from eq.s.v group by (a, b)",
    "select a + count(*) as s from eq.s.v group by all",
    "select a, sum(b) as b from eq.s.v group by a order by sum(b)",
    "select id, cast(m as int) from eq.s.v",
    "select id, cast(f64 as int) from eq.s.v",
    "select id, cast(q as decimal(3,3)) from eq.s.v",
    "select cast(c as date) as r from (values ('2021-02-29')) as v(c)",
    "select sum(i64) from eq.s.v where i64 > 0",
    "select id, (select amount from eq.s.o where o.id = k.id) as one from eq.s.k",
    "select nosuch from eq.s.v",
    "select a, b from eq.s.v group by a",
    "select sum(l) from eq.s.v",
    "select id from eq.s.k a join eq.s.o b on a.id = b.id",
    "select a from eq.s.v where sum(a) > 1",
    "select id from eq.s.v where a",
    "select id from eq.s.k where null",
    "select id from eq.s.k union select id, v from eq.s.k",
    "select id from eq.s.k order by 3",
    "select * from eq.s.k where id in (select id, v from eq.s.k)",
    "select id, count(*) from eq.s.k",
    "select a is null = z from eq.s.v",
    "select größe from eq.s.v",
    "select a as b, count(*) from eq.s.v group by b order by 1, 2",
    "select id from eq.s.k where row_number() over (order by id) = 1",
]

UNPROVED = [
    "select o.* from eq.s.k join eq.s.o using (id) join eq.s.v using (id)",
    "select count(1) from values (1), (2) as t(all) group by all",
    "select a + b, a, b, count(*) from eq.s.k, (select 1 as a, 2 as b) group by rollup(a + b, b, a)",
    "select a + b, count(*) from (select 1 as a, 2 as b) group by grouping sets ((a + b), (b + a))",
    "select not a is null from eq.s.v",
    "select extract(year from d), extract(YEAR from d) from eq.s.v",
    "select a & 3 | 4 from eq.s.v",
    "select id, count(*) over (order by m range between 1 preceding and current row) as c from eq.s.v",
    "select (grp in (select id from eq.s.o)) is null as c from eq.s.k",
    "select 1 as k, count(*) from eq.s.v group by rollup(k)",
    "select round(f32, 1) as r, round(a, -1) as t from eq.s.v",
    "select x = 1 from eq.s.v",
    "select a = b < z from eq.s.v",
    "select (a is null) = z from eq.s.v",
    "select x like 'a%' = z from eq.s.v",
    "select st = st from eq.s.v",
    "with recursive q as (select 1 as n union all select n + 1 from q where n < 5) select * from q",
    "select null as n, id from eq.s.k",
]
