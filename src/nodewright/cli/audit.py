"""`nodewright audit`: where a live node disagrees with itself."""

import dataclasses
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from nodewright.api.client import DEFAULT_SOCKET
from nodewright.audit.compare import audited
from nodewright.audit.values import GapKind
from nodewright.cli.app import ERROR, NO, YES
from nodewright.cli.auditing import Asked, gathered
from nodewright.cli.options import node as node_option
from nodewright.cli.options import output
from nodewright.render.audit import audit_document, audit_text, gap_sentence
from nodewright.render.documents import as_json, as_yaml
from nodewright.world.kubelet_root import USUAL_ROOT

OWN_ROOT = Path("/var/lib/nodewright")

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PLACE = click.Path(path_type=Path)


@click.command("audit")
@click.option(
    "--kubelet-root",
    "--root-dir",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="State files: the kubelet's directory, or the agent's. Default: the one that is there.",
)
@click.option(
    "--pod-resources",
    type=_PLACE,
    metavar="SOCKET",
    help="Default: pod-resources/kubelet.sock in that directory, if it is there.",
)
@click.option(
    "--cgroups",
    default="live",
    metavar="DIR|live|none",
    help="Cgroup files: a copy of the tree, or this machine's. Default: live.",
)
@click.option("--cgroup-root", metavar="PATH", help="Below it all groups stand. Default: as configured.")
@click.option(
    "--pods", type=_FILE, metavar="FILE", help="`kubectl get pods -A -o json`, or the kubelet's /pods."
)
@click.option("--node-name", default="", metavar="NAME", help="Which node's pods are meant.")
@click.option("--socket", type=_PLACE, metavar="PATH", help="An agent that listens here: its pods.")
@click.option(
    "--kubelet-config", type=_FILE, metavar="FILE", help="Default: config.yaml in the kubelet's directory."
)
@click.option("--configz", type=_FILE, metavar="FILE", help="The same, as the kubelet's /configz answers.")
@node_option
@output("json", "yaml")
def command(*, output: str | None, **given: Any) -> int:
    """Compare what a live node says of itself: state files, PodResources, cgroup files and the API's pods.

    One table of what disagrees, what it means and what to do. Nothing is written; it works beside a kubelet, and
    with an agent of nodewright that runs or not. Each source may be absent: what was not compared is said. Without any
    option it looks for an agent on this machine, then for a kubelet. Exit code 3 if something disagrees; 1 if nothing
    does, but a source that was named could not be read; else 0.
    """
    asked = _with_usual(Asked(**{one.name: given[one.name] for one in dataclasses.fields(Asked)}))
    found = gathered(asked)
    audit = audited(found.evidence)
    audit = replace(audit, gaps=(*found.gaps, *audit.gaps))
    if output:
        click.echo((as_json if output == "json" else as_yaml)(audit_document(audit)), nl=False)
    else:
        click.echo(audit_text(audit), nl=False)
        for gap in audit.gaps:
            is_bad = gap.what is GapKind.NOT_READ
            click.echo(("warning: " if is_bad else "") + gap_sentence(gap), err=True)
    if audit.findings:
        return NO
    if not audit.compared:
        click.echo(
            "error: there was nothing to compare: two sources at least have to say something", err=True
        )
    return YES if audit.compared and not found.failed else ERROR


def _with_usual(asked: Asked) -> Asked:
    """With an agent or a kubelet of this machine, where nothing is named."""
    if asked.root or asked.pods or asked.socket or asked.pod_resources:
        return asked
    for root in (OWN_ROOT, USUAL_ROOT):
        if root.is_dir():
            own = DEFAULT_SOCKET if root == OWN_ROOT and DEFAULT_SOCKET.exists() else None
            return dataclasses.replace(asked, root=root, socket=own)
    return asked
