"""The Linux machine behind protocols: cgroup file system, volumes, memory pressure, probes, TLS keys."""
