"""The read model: the tables that all reads of a log come from, the same in SQLite and PostgreSQL."""
