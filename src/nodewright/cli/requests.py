"""`nodewright requests`: what pods ask for, where it comes from, and how well it protects them."""

import shutil

import click

from nodewright.cli import options
from nodewright.cli.app import YES
from nodewright.cli.inputs import tell, workloads
from nodewright.core.requests import asked
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.requests import Entry, requests_names, requests_text, requests_wide
from nodewright.render.requests_document import requests_document
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import Workload
from nodewright.world.nodes import find_profile

WIDEST = 100
"""Lines longer than this are hard to read."""


@click.command("requests")
@options.filenames
@click.option(
    "--memory-capacity",
    metavar="AMOUNT",
    help="Memory of the node that oom_score_adj is computed for, e.g. 64Gi. Default: that of the node.",
)
@options.node
@options.namespace
@options.output("json", "yaml", "wide", "name")
def command(
    filenames: tuple[str, ...],
    memory_capacity: str | None,
    node: str | None,
    namespace: str,
    output: str | None,
) -> int:
    """Say what each pod asks for: effective requests and limits, defaults, QoS class, oom_score_adj.

    Each with what decides it: which container, init container, sidecar, overhead or pod-level entry. Of an object
    that makes pods (Deployment, DaemonSet, Job, ...) its pod template is looked at.
    """
    loaded = workloads(filenames, namespace)
    memory_bytes, memory_of = _memory(memory_capacity, node)
    entries = [_entry(workload, memory_bytes) for workload in loaded.workloads]
    tell(loaded, loaded.warnings)
    if output in ("json", "yaml"):
        document = requests_document(
            entries, memory_of, memory_bytes, skipped=loaded.skipped, warnings=loaded.warnings
        )
        text = (as_json if output == "json" else as_yaml)(document)
    elif not entries:
        text = ""
    elif output == "wide":
        text = requests_wide(entries)
    elif output == "name":
        text = requests_names(entries)
    else:
        columns = shutil.get_terminal_size((80, 24)).columns
        text = requests_text(entries, memory_of, width=min(columns, WIDEST))
    click.echo(text, nl=False)
    return YES


def _entry(workload: Workload, memory_bytes: int) -> Entry:
    return Entry(
        source=workload.source,
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.name,
        namespace=workload.namespace,
        replicas=workload.replicas,
        asked=asked(workload.pod, memory_bytes),
    )


def _memory(amount: str | None, node: str | None) -> tuple[int, str]:
    """The node's memory in bytes, and whose it is."""
    if amount is None:
        profile = find_profile(node)
        memory_bytes = profile.spec.machine_info.memory_capacity
        memory_of = "the memory of this machine" if node is None else f"the memory of node {node}"
    else:
        memory_bytes, memory_of = _parsed(amount), "as --memory-capacity says"
    if memory_bytes < 1:
        fault = Fault(source="memory of the node", value=memory_bytes, rule="must be greater than zero")
        raise InputError([fault])
    return memory_bytes, memory_of


def _parsed(amount: str) -> int:
    try:
        return Quantity.parse(amount).value()
    except QuantityError as error:
        raise InputError([Fault(source="--memory-capacity", value=amount, rule=str(error))]) from error
