"""Amounts, sets of ids, units. Values print and parse in the notation of Kubernetes or the kernel."""
