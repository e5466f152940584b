"""Rows and values in the forms they travel in: JSON, NDJSON, CSV. Knows no table and no storage."""
