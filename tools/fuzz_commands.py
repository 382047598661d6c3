"""Commands of nodewright as readers of a file: `tools.fuzz` runs them in its own process, on one file after another."""

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR
from tools.source import ROOT

Reader = Callable[[bytes], object]


def reader_of(line: str, other: bytes = b"") -> Reader:
    """Runs the command on a file with the content; its output is dropped."""

    def read(content: bytes) -> None:
        arguments = [_argument(word, content, other) for word in line.split()]
        printed, dropped = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(dropped),
            contextlib.chdir(ROOT),
        ):
            code = run(arguments)
        if line.endswith("-o json") and code != ERROR:
            json.loads(printed.getvalue(), parse_constant=_refuse_constant)

    return read


def _argument(word: str, content: bytes, other: bytes) -> str:
    """The word, or the path of a file with the content; for TREE:SOURCE:FILE a directory with it in that file."""
    if word.startswith("TREE:"):
        _, source, file = word.split(":")
        tree = _tree(source, file)
        (tree / file).write_bytes(content)
        return str(tree)
    name = {"FILE": "in.json", "TABLE": "in.csv", "OTHER": "other.json"}.get(word)
    if name is None:
        return word
    path = _directory() / name
    path.write_bytes(other if word == "OTHER" else content)
    return str(path)


@cache
def _directory() -> Path:
    """A directory for the files of this process and of its children, which run one at a time.

    It is in memory if this machine has such a file system, and is removed when the process ends.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a new directory in it
    directory = tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory)
    _kept.append(directory)
    return Path(directory.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []
"""Removes its directory when the process ends."""


@cache
def _tree(source: str, file: str) -> Path:
    """A copy of the directory in which only that file is written."""
    tree = Path(tempfile.mkdtemp(dir=_directory()), "tree")
    shutil.copytree(ROOT / source, tree)
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    return tree


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
