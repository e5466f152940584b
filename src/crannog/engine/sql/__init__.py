"""One SQL, three engines with the same results: hot (memory), local (DuckDB on the files), Spark.

statement         text → one checked, read-only statement and the tables it names
sources           those tables → the snapshots to read
duckdb_compiler   statement → DuckDB's SQL, by rules proved equal to Spark; anything else has no rule
file_pruning      the files that a condition leaves, by the statistics of the log
query_plan        the compiled statement, the files it reads, the engine (hot, local or Spark), and why
hot_tables        tables in memory
run_on_duckdb, run_on_spark   run the statement
queries           the entry point: limits, ids, cancel, explain
"""
