"""Files of a volume replaced all at once: who reads them sees all the old ones or all the new ones."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodewright.core.environment import FileContent

_DATA, _NEW_DATA = "..data", "..data_tmp"


def write_all(directory: Path, files: Mapping[str, FileContent], group: int | None = None) -> bool:
    """The directory has these files and no others; whether anything had to be written.

    A link `..data` leads to a directory with a version of them, and the names that people see lead through it.

    Follows: v1.36, pkg/volume/util/atomic_writer.go, Write.
    Errors:  OSError.
    """
    files = {path: _grouped(content, group) for path, content in files.items()}
    old = _version(directory)
    must_write = old is None or _content(old) != files
    if must_write:
        made = Path(tempfile.mkdtemp(prefix="..", dir=directory))
        made.chmod(0o755)
        _write(made, files, group)
        _lead(directory / _DATA, made.name)
    tops = {path.partition("/")[0] for path in files}
    for name in sorted(tops):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{_DATA}/{name}")
    for one in list(directory.iterdir()):
        if not one.name.startswith("..") and one.name not in tops:
            one.unlink()
    current = _version(directory)
    for one in list(directory.glob("..*")):
        if one.is_dir() and not one.is_symlink() and one != current:
            shutil.rmtree(one)
    return must_write


def _grouped(content: FileContent, group: int | None) -> FileContent:
    """Readable for the group, if there is one that the volume is for."""
    if group is None:
        return content
    return FileContent(content.data, content.mode | (content.mode & 0o400) >> 3)


def _version(directory: Path) -> Path | None:
    """The directory that the current version is in."""
    try:
        return directory / (directory / _DATA).readlink()
    except FileNotFoundError:
        return None


def _content(version: Path) -> dict[str, FileContent]:
    return {
        str(one.relative_to(version)): FileContent(one.read_bytes(), one.stat().st_mode & 0o7777)
        for one in version.rglob("*")
        if one.is_file()
    }


def _write(version: Path, files: Mapping[str, FileContent], group: int | None) -> None:
    for path, content in files.items():
        file = version / path
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        file.write_bytes(content.data)
        if group is not None:
            os.chown(file, -1, group)
        # After the change of owner, which takes rights away.
        file.chmod(content.mode)


def _lead(link: Path, to: str) -> None:
    """The link leads there, at once."""
    new = link.with_name(_NEW_DATA)
    new.unlink(missing_ok=True)
    new.symlink_to(to)
    new.replace(link)
