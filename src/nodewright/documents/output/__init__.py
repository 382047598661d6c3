"""Shared output: aligned tables, JSON and YAML, plots, HTML pages, JUnit, SARIF, Prometheus text."""
