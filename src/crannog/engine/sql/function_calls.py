"""Checks the functions that a statement calls: only reviewed ones, with options that are literals in the text.

Works on tokens: what precedes an opening parenthesis is a function, a keyword, or the name of a relation with its
columns. Spark's functions are reviewed one by one, and a function in none of the lists is refused. When a new version of
Spark has a new one, read what it does before adding it: does it open a file, an address, a class or a session's settings
by a name that the caller gives?

Crannog's own functions are plain SQL around the arguments, each used once, so that every engine runs the same.
`match_attr(search_blob, key, value)` tells whether a span has an attribute with this very value, as text: the blob
holds it as `|key=value|`, where a bar is written `\\p`, a backslash `\\\\`, and an equals sign in the key `\\e`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

from sqlglot.tokens import Token, TokenType

from crannog.engine.sql.text_products import check_products
from crannog.engine.sql.tokens import CLOSING, OPENING, STRINGS, is_name, word
from crannog.errors import CallerError, Refused


def _names(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


# Refused: they call Java methods, read files or descriptors by path, show where files are, or turn text into names.
DENIED = _names(
    """
    from_avro from_protobuf identifier input_file_block_length input_file_block_start
    input_file_name java_method python_worker_logs read_files reflect schema_of_avro table_changes
    table_changes_by_path to_avro to_protobuf try_reflect
    """
)

# They compute from their arguments alone.
_PURE = _names(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array
    array_agg array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 between bigint
    bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position
    bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim
    cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    collect_list collect_set concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if
    count_min_sketch covar_pop covar_samp crc32 csc cume_dist curdate current_date current_time current_timestamp
    date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff
    datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank div double e element_at
    elt encode endswith equal_null every exists exp explode explode_outer expm1 extract factorial filter
    find_in_set first first_value flatten float floor forall format_number format_string from_unixtime
    from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric
    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hour hypot if ifnull ilike in initcap inline
    inline_outer instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull json_array_length
    json_object_keys json_tuple kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
    kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least
    left len length levenshtein like listagg ln localtimestamp locate log log10 log1p log2 lower lpad ltrim
    luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean measure median min
    min_by minute mod mode month monthname months_between named_struct nanvl negative next_day not now nth_value
    ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percent_rank percentile
    percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow
    power printf quarter quote radians raise_error rand randn random randstr range rank reduce regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint
    rlike round row_number rpad rtrim schema_of_variant schema_of_variant_agg sec second sentences sequence
    session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh size
    skewness slice smallint some sort_array soundex space split split_part sqrt st_asbinary st_geogfromwkb
    st_geomfromwkb st_setsrid st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string
    string_agg struct substr substring substring_index sum tan tanh theta_difference theta_intersection
    theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time time_bucket
    time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds
    time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint to_binary to_char to_date
    to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    to_variant_object transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt
    try_avg try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary
    try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_seconds
    unix_timestamp upper url_decode url_encode validate_utf8 var_pop var_samp variance variant_explode
    variant_explode_outer variant_get vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance
    vector_norm vector_normalize vector_sum weekday weekofyear when width_bucket window window_time xxhash64 year
    zeroifnull zip_with
    """
)

# They return the session's user, version, time zone or task, none of which the caller can change.
_SESSION = _names(
    """
    collations current_catalog current_database current_path current_schema current_timezone current_user monotonically_increasing_id
    session_user spark_partition_id sql_keywords user uuid version
    """
)

# They parse XML with a parser that follows DOCTYPE, which may name files and addresses: documents with one are refused.
XPATH = _names(
    """
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    """
)

_PARSING = """
    mode columnNameOfCorruptRecord dateFormat timestampFormat timestampNTZFormat timeFormat enableDateTimeParsingFallback
    encoding charset locale timeZone lineSep samplingRatio multiLine inferSchema preferDate inferTimestamp
    singleVariantColumn nullValue
"""
_JSON = """
    primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros
    allowNonNumericNumbers allowBackslashEscapingAnyCharacter allowUnquotedControlChars dropFieldIfAllNull
    ignoreNullFields sortKeys maxNestingDepth maxNumLen maxStringLen pretty writeNonAsciiCharacterAsCodePoint
"""
_CSV = """
    sep delimiter quote escape comment header enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nanValue
    positiveInf negativeInf maxColumns maxCharsPerColumn charToEscapeQuoteEscaping emptyValue unescapedQuoteHandling
    quoteAll escapeQuotes columnPruning inputBufferSize maxMalformedLogPerPartition
"""
# Not rowValidationXSDPath, which names a file or an address and shows its content in an error.
_XML = """
    rowTag rootTag excludeAttribute attributePrefix valueTag ignoreSurroundingSpaces ignoreNamespace declaration
    arrayElementName wildcardColName validateName indent prefersDecimal
"""


OPTIONS: Mapping[str, tuple[int, frozenset[str]]] = {
    "from_csv": (2, _names(_PARSING, _CSV)),
    "from_json": (2, _names(_PARSING, _JSON)),
    "from_xml": (2, _names(_PARSING, _XML)),
    "schema_of_csv": (1, _names(_PARSING, _CSV)),
    "schema_of_json": (1, _names(_PARSING, _JSON)),
    "schema_of_xml": (1, _names(_PARSING, _XML)),
    "to_csv": (1, _names(_PARSING, _CSV)),
    "to_json": (1, _names(_PARSING, _JSON)),
    "to_xml": (1, _names(_PARSING, _XML)),
}
"""Functions that take a map of options: the position of the map among the arguments, and the allowed keys."""

TABLE_FUNCTIONS = _names(
    """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range sql_keywords stack
    variant_explode variant_explode_outer
    """
)

KNOWN = _PURE | _SESSION | XPATH | frozenset(OPTIONS)


# chr() instead of quoted backslashes, which the dialects read differently.
_BAR, _SLASH = "chr(124)", "chr(92)"
_ESCAPED = f"), {_SLASH}, {_SLASH} || {_SLASH}), {_BAR}, {_SLASH} || 'p')"

PIECES: Mapping[str, tuple[str, ...]] = {
    "match_attr": (
        "contains((",
        f"), {_BAR} || replace(replace(replace((",
        f"{_ESCAPED}, '=', {_SLASH} || 'e') || '=' || replace(replace((",
        f"{_ESCAPED} || {_BAR})",
    ),
}
"""The SQL before the first argument of each function, between the arguments, and after the last."""


def own_call(name: str, arguments: Sequence[str]) -> str:
    """Return the SQL of a call."""
    return "".join(part for pair in itertools.zip_longest(PIECES[name], arguments, fillvalue="") for part in pair)


# Keywords that may precede a parenthesis, types with parameters, and calls that Spark's grammar has
# without a function of that name.
_SYNTAX = frozenset(
    """
    all and any as asc bernoulli between both by case columns cross cube desc dec distinct div else end escape except
    exclude exists extend aggregate filter following for from full group having ignore ilike in include inner
    intersect interval into is join lateral leading left level like limit map minus natural not null nulls numeric of
    offset on or order outer over partition percent pivot placing preceding qualify range recursive regexp
    repeatable respect returning right rlike rollup rows select semi anti set sets some sort sum system table tablesample
    then to trailing union unpivot using values varchar char character decimal view when where window with within
    geography geometry timestampadd timestampdiff timediff dateadd datediff try_cast unnest time timestamp binary string
    """.split()  # noqa: SIM905
)
# Options must be a map of literals; DOCTYPE is searched for in the documents themselves.
_GUARD = (
    "element_at(transform(array(",
    "), d -> CASE WHEN contains(d, '<!DOCTYPE') THEN raise_error('XML with a DOCTYPE is not allowed') ELSE d END), 1)",
)
_GUARD_SHOWN = (
    "element_at(transform(array(",
    "), lambdafunction(CASE WHEN contains(namedlambdavariable(), <!DOCTYPE) THEN raise_error(USER_RAISED_EXCEPTION,"
    " map(errorMessage, XML with a DOCTYPE is not allowed)) ELSE namedlambdavariable() END, namedlambdavariable())), 1)",
)


_VALUES = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


def check_calls(tokens: Sequence[Token], aliases: Set[int]) -> None:
    """Raise Refused for a function that was not reviewed, or options that are not literals; `aliases` are names of relations."""
    for place, name in _called(tokens, aliases):
        if name in DENIED:
            raise Refused(f"the function {name} is not allowed: it reaches outside the warehouse")
        if name in PIECES:
            count, wanted = len(_arguments(tokens, place + 1)), len(PIECES[name]) - 1
            if count != wanted:
                raise CallerError(f"{name} takes {wanted} arguments, got {count}")
        elif name in OPTIONS:
            _check_options(tokens, place, name)
        elif name not in KNOWN and name not in _SYNTAX:
            raise Refused(
                f"there is no function {str(tokens[place].text)!r}; Spark's built-in functions are allowed, except those that reach outside the warehouse"
            )
    check_products(tokens, _called(tokens, aliases))
    for place, token in enumerate(tokens):
        if token.token_type in STRINGS and place and word(tokens[place - 1]) == "USING":
            raise Refused("TRANSFORM … USING runs a program and is not allowed")
        if (
            token.token_type is TokenType.PARAMETER
            or (token.text == "?" and token.token_type not in STRINGS)
            or _is_parameter(tokens, place)
        ):
            raise Refused("a statement cannot have parameters or variables; write the values")


def _is_parameter(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a colon begins the name of a parameter; after a value it extracts a field."""
    if tokens[place].token_type is not TokenType.COLON:
        return False
    return place == 0 or tokens[place - 1].token_type not in _VALUES


def _called(tokens: Sequence[Token], aliases: Set[int]) -> Iterator[tuple[int, str]]:
    for place, token in enumerate(tokens[:-1]):
        if tokens[place + 1].token_type is not TokenType.L_PAREN or not is_name(token):
            continue
        name = str(token.text).lower() if token.token_type is TokenType.IDENTIFIER else word(token).split()[-1].lower()
        # The name of a relation is not a call, but must not look like a refused one either.
        named = token.start in aliases or (place > 0 and word(tokens[place - 1]) == "AS")
        if not named or name in DENIED:
            yield place, name


def _separators(tokens: Sequence[Token], opening: int) -> list[int]:
    """Return the places of the parentheses of a call and of the commas between its arguments."""
    found = []
    depth = 0
    for place in range(opening, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind in OPENING) - (kind in CLOSING)
        if place == opening or (depth == 1 and kind is TokenType.COMMA):
            found.append(place)
        elif not depth:
            return [*found, place]
    return found


def _arguments(tokens: Sequence[Token], opening: int) -> list[Sequence[Token]]:
    """Return the tokens of each argument of a call."""
    found = [tokens[one + 1 : other] for one, other in itertools.pairwise(_separators(tokens, opening))]
    return found if found != [tokens[:0]] else []


def _check_options(tokens: Sequence[Token], place: int, name: str) -> None:
    index, known = OPTIONS[name]
    arguments = _arguments(tokens, place + 1)
    if any(token.token_type is TokenType.FARROW for argument in arguments for token in argument):
        raise Refused(f"{name} takes its arguments by position, not by name")
    for argument in arguments[index:]:
        keys = _map_keys(argument)
        if keys is None:
            raise Refused(f"the options of {name} must be a map of literals, like map('mode', 'FAILFAST')")
        for key in keys:
            if key.lower() not in {name.lower() for name in known}:
                raise Refused(f"{name} has no option {key!r} here; use one of {', '.join(sorted(known))}")


def _map_keys(argument: Sequence[Token]) -> list[str] | None:
    """Return the keys of `map('a', 'b', …)`; None for anything else."""
    if len(argument) < 3 or word(argument[0]) != "MAP" or argument[1].token_type is not TokenType.L_PAREN:
        return None
    inner = argument[2:-1]
    if argument[-1].token_type is not TokenType.R_PAREN or len(inner) % 4 != (3 if inner else 0):
        return None
    for at, token in enumerate(inner):
        if token.token_type is not (TokenType.COMMA if at % 2 else TokenType.STRING):
            return None
    return [str(token.text) for token in inner[::4]]


# -- XML ---------------------------------------------------------------------------------------------------------


def guarded_documents(tokens: Sequence[Token], aliases: Set[int]) -> dict[int, tuple[int, str]]:
    """Return replacements for tokens, by start and with their end, that make documents with a DOCTYPE fail."""
    swaps: dict[int, tuple[int, str]] = {}
    for place, name in _called(tokens, aliases):
        if name not in XPATH:
            continue
        separators = _separators(tokens, place + 1)
        if len(separators) > 2:
            opening, comma = (tokens[place] for place in separators[:2])
            swaps[opening.start] = (opening.end, "(" + _GUARD[0])
            swaps[comma.start] = (comma.end, _GUARD[1] + ",")
    return swaps


def own_calls(tokens: Sequence[Token], aliases: Set[int]) -> dict[int, tuple[int, str]]:
    """Return replacements for the tokens around the arguments of our own functions, which Spark does not know."""
    swaps: dict[int, tuple[int, str]] = {}
    for place, name in _called(tokens, aliases):
        if name in PIECES and tokens[place].token_type is TokenType.VAR:
            swaps[tokens[place].start] = (tokens[place].end, "")
            for separator, piece in zip(_separators(tokens, place + 1), PIECES[name], strict=True):
                swaps[tokens[separator].start] = (tokens[separator].end, piece)
    return swaps


def without_guards(name: str) -> str:
    """Return the column name that Spark would give for the original statement."""
    for piece in _GUARD_SHOWN:
        name = name.replace(piece, "")
    return name
