"""Search for traces and spans: the filter language, sorted pages of results, and completion."""
