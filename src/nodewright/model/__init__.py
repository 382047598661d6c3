"""Floor 1: the objects we read and the values that decisions are made of."""
