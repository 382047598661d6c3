"""Columns as a Parquet file (extra `parquet`)."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nodewright.world.errors import WorldError


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write the columns, which are equally long.

    Errors: WorldError if the package is not installed.
    """
    try:
        polars: Any = import_module("polars")  # an extra, wanted only here
    except ImportError as error:
        raise WorldError("load", "polars", f"{error}; pip install 'nodewright[parquet]'") from error
    polars.DataFrame(dict(columns), infer_schema_length=None).write_parquet(path)
