"""Parsers that turn bytes into values: YAML, JSON, manifests and strict schemas."""
