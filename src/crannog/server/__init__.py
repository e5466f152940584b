"""The server: every verb of a lake over HTTP. Its doors translate; the lake decides."""
