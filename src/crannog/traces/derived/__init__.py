"""Tables that are worked out from the spans: trace summaries, RED metrics, service edges, the catalogue of attributes.

Each holds exactly what its definition gives for one version of the span table's base, and the commit that brings it to
a later version says so. `derive` does that with Spark; reads add what came since, in the process.
"""
