"""Which CPUs? The topology of a machine, the picking of CPUs, and the CPU manager's policies."""
