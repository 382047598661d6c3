"""Bytes in, values out, and back: files, formats, profiles and output."""
