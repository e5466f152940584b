"""Compiles a Spark SQL statement to DuckDB's SQL, by rules that were proved equal to Spark's behaviour.

Every expression is compiled together with its Spark type, so that results have exactly Spark's types. Anything without
a rule raises `NoRule` and the statement goes to Spark. A rule need not cover every value: where DuckDB's result would
differ it must raise an error, and then Spark runs the statement. The differential tests run every rule on all engines.
"""

from crannog.engine.sql.duckdb_compiler.select import Compiled, compile_statement
from crannog.engine.sql.duckdb_compiler.terms import NoRule

__all__ = ["Compiled", "NoRule", "compile_statement"]
