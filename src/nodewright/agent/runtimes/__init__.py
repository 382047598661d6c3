"""Container runtimes: plain processes, CRI, simulated."""
