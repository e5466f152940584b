"""A connection to a server: the operations of a lake over HTTP. Needs neither Spark, Java nor the packages of the engine."""
