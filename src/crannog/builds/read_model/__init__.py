"""The read model: the tables that answer every question about builds, the same in SQLite and PostgreSQL."""
