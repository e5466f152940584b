"""The trace store: stores OTLP and Zipkin spans, and reads, searches, measures and erases traces."""
