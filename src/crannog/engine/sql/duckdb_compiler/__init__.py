"""From a Spark SQL statement to DuckDB's SQL, by rules that were proved equal: the list of what the fast engines run.

Every expression is compiled together with its Spark type, so that results have exactly Spark's types. What has no
rule raises `Unproved` and the statement goes to Spark. A rule need not cover every value: where DuckDB would answer
otherwise it must raise an error, and then Spark is asked. The differential tests run every rule on all engines.
"""

from crannog.engine.sql.duckdb_compiler.select import Compiled, compile_statement
from crannog.engine.sql.duckdb_compiler.terms import NoRule

__all__ = ["Compiled", "NoRule", "compile_statement"]
