"""The README of the package: README.md, whose relative links lead nowhere outside the repository, without them.

hatchling calls it when it builds the package (`[tool.hatch.metadata.hooks.custom]` in pyproject.toml).
"""

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ModuleNotFoundError:  # tests need the text only
    MetadataHookInterface = object

_IMAGE = re.compile(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\((?!https?:|#)[^)]*\)")


def package_readme(text: str) -> str:
    """The text with the words of relative links in place of the links, and without relative images.

    >>> package_readme("See [the guide](docs/index.md) and [Kubernetes](https://kubernetes.io).")
    'See the guide and [Kubernetes](https://kubernetes.io).'
    """
    return _LINK.sub(r"\1", _IMAGE.sub("", text))


class PackageReadme(MetadataHookInterface):  # type: ignore[misc] # mypy does not read hatchling
    """Sets the README of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the text to the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": package_readme(text)}
