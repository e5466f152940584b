/** Words of Spark SQL that the server runs: for highlighting and completion. */

export const KEYWORDS =
  "all analyze and anti any as asc at between both by case cast catalog cluster collate columns cross cube current" +
  " date_add day days dbs default desc describe distinct distribute div else end escape except exclude exists explain" +
  " extended extract false fetch filter first following for formatted from full function functions global group" +
  " grouping having hour hours if ignore ilike in inner intersect interval into is join last lateral leading left like" +
  " limit local map minus minute minutes month months natural not null nulls of offset on or order out outer over" +
  " overlay partition percent pivot position preceding qualify range recursive regexp respect right rlike rollup row" +
  " rows schema schemas second seconds select semi session_user set sets show some sort start struct substring" +
  " substr table tables tablesample temporary then time timestamp to trailing trim true truncate unbounded union" +
  " unique unknown unpivot user using values version view week weeks when where window with within year years";

export const TYPES =
  "array bigint binary boolean byte char date dec decimal double float int integer interval long map numeric real" +
  " short smallint string struct timestamp timestamp_ltz timestamp_ntz tinyint varchar variant void";

export const FUNCTIONS =
  "abs aggregate any_value approx_count_distinct approx_percentile array_agg array_contains array_distinct" +
  " array_join array_max array_min array_position array_size array_sort avg base64 bit_count bround cardinality" +
  " cbrt ceil char_length coalesce collect_list collect_set concat concat_ws contains corr cos count count_if" +
  " covar_pop crc32 cume_dist current_date current_timestamp date_diff date_format date_part date_sub date_trunc" +
  " datediff dayofmonth dayofweek dayofyear decode degrees dense_rank element_at endswith exp explode explode_outer" +
  " factorial first_value flatten floor format_number format_string from_json from_unixtime get_json_object" +
  " greatest hash hex histogram_numeric ifnull initcap instr isnan isnotnull isnull json_tuple kurtosis lag" +
  " last_day last_value lead least length levenshtein ln locate log log10 log2 lower lpad ltrim make_date" +
  " make_timestamp map_entries map_from_entries map_keys map_values match_attr max max_by md5 mean median min" +
  " min_by mod mode monotonically_increasing_id nth_value ntile nullif nvl nvl2 parse_url percent_rank percentile" +
  " percentile_approx pmod posexplode pow power quarter radians rand rank regexp_count regexp_extract" +
  " regexp_extract_all regexp_like regexp_replace repeat replace reverse round row_number rpad rtrim sequence" +
  " sha1 sha2 sign sin size skewness slice sort_array soundex split split_part sqrt startswith stddev stddev_pop" +
  " stddev_samp str_to_map substring_index sum tan timestamp_micros timestamp_millis timestamp_seconds to_date" +
  " to_json to_timestamp transform translate try_add try_avg try_cast try_divide try_element_at try_sum" +
  " typeof unbase64 unhex unix_micros unix_millis unix_seconds unix_timestamp upper uuid var_pop var_samp variance" +
  " weekday weekofyear width_bucket xxhash64 zip_with";
