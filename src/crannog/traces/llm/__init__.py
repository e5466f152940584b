"""Spans of language models: sessions, their use over time, and the messages of a trace."""
