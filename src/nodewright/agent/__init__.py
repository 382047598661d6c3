"""The agent: observes, decides, persists, and runs effects."""
