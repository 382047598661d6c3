"""What files show that will hurt later: rules, each a small function of one object and what stands around it."""
