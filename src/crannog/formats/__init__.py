"""Reads and writes rows and values as JSON, NDJSON, CSV and Arrow, and finds the files to load. Knows no tables and no storage."""
