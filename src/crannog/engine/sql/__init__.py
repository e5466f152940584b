"""One SQL, three engines: hot (memory), local (DuckDB on the files), Spark; and always the same answer.

statement   text → one checked, read-only statement and the tables it names
sources     those tables → the snapshots that are read
fast        statement → DuckDB's SQL, by rules proved equal to Spark; anything else is "not proved"
pruning     which files a condition leaves, by the statistics of the log
route       hot, local or Spark, and why
hot         tables held in memory
on_duckdb, on_spark   run it
queries     the front: limits, ids, cancel, explain
"""
