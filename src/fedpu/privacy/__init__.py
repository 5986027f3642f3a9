"""privacy: what the server may learn of a client."""
