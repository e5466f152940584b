"""Converts OTLP and Zipkin requests to rows of the span table; touches no storage."""

from __future__ import annotations
