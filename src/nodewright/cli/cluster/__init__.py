"""Commands that ask a cluster: its options, the session with its API server, and what its nodes answer."""
