"""Operations on tables, and loads: what files hold, whether it fits, and the batches in which it is kept.

A load uses a lake by its public methods alone.
"""
