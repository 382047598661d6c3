"""The files that `-f` names, as bytes: files, directories as kubectl walks them, standard input."""

import codecs
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nodewright.world.errors import Fault, InputError
from nodewright.world.yaml import MAX_YAML_BYTES

_WIDEST_CHARACTER = 4  # bytes, in UTF-32
_BEFORE_JSON = b" \t\r\n\0" + codecs.BOM_UTF8 + codecs.BOM_UTF16_LE
SUFFIXES = (".json", ".yaml", ".yml")
STDIN = "-"


class File(NamedTuple):
    """A file's name as people know it, and its content."""

    source: str
    content: bytes


def named_files(filenames: Sequence[str], *, recursive: bool = False) -> list[str]:
    """The files meant, in order; a directory stands for its manifests, sorted by path.

    Those in directories further down count only if `recursive`. Standard input stays `-`.
    Follows: v1.36, cli-runtime/pkg/resource/visitor.go, ExpandPathsToFileVisitors.
    Errors:  InputError naming each path that is not there and each directory without manifests.
    """
    paths: list[str] = []
    faults: list[Fault] = []
    for name in filenames:
        if name == STDIN:
            paths.append(name)
        elif Path(name).is_dir():
            found = _manifests_in(Path(name), recursive=recursive)
            paths.extend(found)
            if not found:
                faults.append(Fault(rule=f"no files that end in one of {' '.join(SUFFIXES)}", source=name))
        elif Path(name).exists():
            paths.append(name)
        else:
            faults.append(Fault(rule=f'the path "{name}" does not exist'))
    if faults:
        raise InputError(faults)
    return paths


def read_file(path: str, *, max_bytes: int = MAX_YAML_BYTES) -> File:
    """The file's content; `-` is standard input.

    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with what the system says against it; where a file that is no JSON does not end.
    """
    source = "stdin" if path == STDIN else path
    try:
        if path == STDIN:
            return File(source, _content(sys.stdin.buffer, source, max_bytes))
        with Path(path).open("rb") as file:
            return File(source, _content(file, source, max_bytes))
    except OSError as error:
        raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=path)]) from None


def _content(file: BinaryIO, source: str, max_bytes: int) -> bytes:
    most = _WIDEST_CHARACTER * max_bytes + len(codecs.BOM_UTF32_LE)
    content = file.read(most + 1)
    if len(content) <= most:
        return content
    if content.translate(None, _BEFORE_JSON)[:1] == b"{":
        return content + file.read()
    rule = f"more than {max_bytes} bytes, the most that is taken of YAML (JSON may be larger)"
    raise InputError([Fault(rule=rule, source=source)])


def _manifests_in(directory: Path, *, recursive: bool) -> list[str]:
    within = directory.rglob("*") if recursive else directory.iterdir()
    return sorted(str(path) for path in within if path.suffix in SUFFIXES and path.is_file())
