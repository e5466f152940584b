"""What one can ask of a lake and what comes back, wherever it runs: in this process or behind a server."""
