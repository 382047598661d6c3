"""Floor 6½: fakes, strategies and machines for tests, ours and other people's; the conformance runner."""
