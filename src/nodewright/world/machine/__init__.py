"""A machine from what the kernel, lscpu or cAdvisor say about it."""
