"""The Python API of the engine: a `Node` admits, resizes, explains and previews pods; also used by the commands."""
