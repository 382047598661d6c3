"""What servers are entered by: routes, each with the role that it takes."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from starlette.routing import BaseRoute


class Role(StrEnum):
    """What somebody may do."""

    READ = "read"
    WRITE = "write"
    """Change what runs; who may do so may read, too."""


class Entry(NamedTuple):
    """A route, and who may take it where whoever asks has to say who he is."""

    route: BaseRoute
    role: Role = Role.READ


def routes_of(entries: Iterable[Entry]) -> list[BaseRoute]:
    """The routes alone: for servers that everybody who reaches them may ask."""
    return [one.route for one in entries]
