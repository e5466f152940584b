"""A connection to a server: the verbs of a lake over HTTP. Needs neither Spark nor Java nor the packages of the engine."""
