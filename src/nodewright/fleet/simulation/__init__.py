"""Fleets under a virtual clock: a scheduler's placement step chooses nodes, and each node's own `step` decides."""
