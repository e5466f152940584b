"""Traces in the shapes of Jaeger's query API, v1 and v3. Pure: values in, JSON values out."""
