"""Floor 5: what-if, fleets and faults under a virtual clock."""
