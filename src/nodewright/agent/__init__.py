"""Floor 5: observe, step, perform, journal."""
