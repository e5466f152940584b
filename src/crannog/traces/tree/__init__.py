"""Trees of traces: windows of trees of any size, self times, critical paths, and comparison of two traces."""
