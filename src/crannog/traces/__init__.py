"""The trace store: OTLP and Zipkin in, durable at the acknowledgement; traces, metrics and dependencies out."""
