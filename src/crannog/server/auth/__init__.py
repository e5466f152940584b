"""Who may do what: scopes, and the tokens that carry them."""
