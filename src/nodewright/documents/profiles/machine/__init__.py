"""Reads machines from /sys and /proc, lscpu or cAdvisor."""
