"""The Spark pipeline: fold, compact, expire, evolve, vacuum and erase, each one a job that commits once or not at all."""
