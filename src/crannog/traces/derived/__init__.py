"""Tables derived from the spans: trace summaries, RED metrics, calls between services, and attribute keys.

Each has the rows of its definition for one version of the span table's base, and records that version in each commit.
`derive` updates them with Spark; readers add the rows for newer spans in the process.
"""
