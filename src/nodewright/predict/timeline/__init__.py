"""Memory pressure in virtual time: whether kubelet eviction frees memory before the kernel's OOM killer acts."""
