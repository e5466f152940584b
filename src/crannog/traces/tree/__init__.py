"""The tree of one trace: built once by columns, then windows, a skeleton, matches, the critical path and comparisons of it."""
