"""Credentials for registries that a machine has, in docker's configuration files."""

import os
from collections.abc import Iterator
from pathlib import Path

from nodewright.core.registries import Login, logins_of


def logins_here(root: Path) -> tuple[tuple[Login, ...], tuple[str, ...]]:
    """The credentials in the first file that makes sense, and what is wrong with those before it.

    `config.json` is looked for in ``root``, the working directory, `~/.docker` and `/.docker`; then `.dockercfg` in
    ``root``, the working directory, the home and `/`.

    Follows: v1.36, pkg/credentialprovider/config.go, ReadDockerConfigFile.
    """
    wrong: list[str] = []
    for place, is_old in _places(root):
        try:
            return logins_of(place.read_bytes(), is_old=is_old), tuple(wrong)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            wrong.append(f"{place}: {error.strerror}")
        except ValueError as error:
            wrong.append(f"{place}: {error}")
    return (), tuple(wrong)


def _places(root: Path) -> Iterator[tuple[Path, bool]]:
    home = Path(os.environ.get("HOME") or "/")
    for directory in (root, Path.cwd(), home / ".docker", Path("/.docker")):
        yield directory / "config.json", False
    for directory in (root, Path.cwd(), home, Path("/")):
        yield directory / ".dockercfg", True
