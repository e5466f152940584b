"""An explicit-state model check of the protocol that keeps acknowledged data (PROTOCOL.md, rules 1 to 16)."""
