"""Floor 4: what-if, fleets and faults under a virtual clock."""
