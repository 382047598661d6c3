"""Floor 9: what tests and acceptance need, ours and other people's: conformance, fakes, strategies."""
