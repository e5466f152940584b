"""Files into tables: what they hold, whether it fits, and the batches in which it is kept. Speaks to a lake by its verbs alone."""
