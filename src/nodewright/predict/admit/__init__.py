"""Reports of `requests`, `admit`, `preempt` and `resize`."""
