"""Numbers over many spans: rates, errors and durations, heat maps, and what distinguishes some spans from the others."""
