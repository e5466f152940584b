"""Reads and writes rows and values as JSON, NDJSON, CSV and Parquet. Knows no tables and no storage."""
