"""Files of the machine: atomic writes, bounded reads, cgroup files, watched directories."""
