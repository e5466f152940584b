"""OTLP and Zipkin requests to rows of the span table, and rows back to OTLP; pure, nothing here touches storage."""

from __future__ import annotations
