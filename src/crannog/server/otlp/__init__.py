"""The receivers of OTLP: HTTP on one port, gRPC on another, both into the same span table."""
