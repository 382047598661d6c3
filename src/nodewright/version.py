"""The version of the package; the build reads it from here, so that no command loads what reads metadata."""

__version__ = "0.4.0"
