"""Floor 4: observe, step, perform, journal."""
