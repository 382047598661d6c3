"""Replays scenarios and journals on a node: each event with its decision and effects."""
