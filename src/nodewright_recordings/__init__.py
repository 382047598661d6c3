"""Recorded decisions of Kubernetes of every family and release, for `nodewright verify`: `sample.jsonl.gz`."""
