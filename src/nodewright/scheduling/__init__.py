"""Verdicts of many nodes about one pod, for schedulers."""
