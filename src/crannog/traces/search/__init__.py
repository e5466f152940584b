"""Finding traces and spans: the filter language, pages of results in several orders, and what to type next."""
