"""`nodewright version`: the version, and the Kubernetes releases whose rules it knows."""

import platform
from typing import Literal

import click

from nodewright.cli import options
from nodewright.documents.output.json_yaml import ReportDocument, as_json, as_yaml
from nodewright.documents.output.terminal import YES, print_text
from nodewright.model.releases.release_table import NEWEST, RELEASE_TABLES
from nodewright.version import __version__


class VersionReport(ReportDocument, frozen=True, kw_only=True):
    """The version and the Kubernetes releases: `nodewright version`."""

    kind: Literal["VersionReport"] = "VersionReport"
    version: str
    kubernetes_releases: tuple[str, ...]
    """Oldest first."""
    default_release: str
    """The release of nodes that name none."""
    python: str


@click.command("version")
@options.output_option("json", "yaml")
def command(output: str | None) -> int:
    """Show the version and the Kubernetes releases.

    A node of another release is decided by the rules of the nearest one, with a warning.
    """
    report = VersionReport(
        version=__version__,
        kubernetes_releases=tuple(RELEASE_TABLES),
        default_release=NEWEST.name,
        python=platform.python_version(),
    )
    if output is not None:
        print_text((as_json if output == "json" else as_yaml)(report))
        return YES
    releases = ", ".join(report.kubernetes_releases)
    print_text(
        f"nodewright {report.version}\n"
        f"Kubernetes {releases} (nodes that name none: {report.default_release})\n"
        f"Python {report.python}\n"
    )
    return YES
