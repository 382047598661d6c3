"""Fixtures and Hypothesis strategies for tests, in this project and in others."""
