"""`nodewright describe`: a pod or the node with all that an agent knows of it, and why things are where they are."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from nodewright.api.client import PROFILE_ROUTE, Client
from nodewright.cli import options
from nodewright.cli.app import YES
from nodewright.cli.options import output as formats
from nodewright.cli.talking import (
    NODES,
    PODS,
    decoded,
    listed,
    now,
    pod_names,
    pod_route,
    talking,
)
from nodewright.model.profile import Device
from nodewright.render.describe import describe_text
from nodewright.render.describe_node import describe_node_text
from nodewright.render.documents import as_json, as_yaml
from nodewright.world.decode import decode


@click.command("describe")
@click.argument("words", metavar="pod|node [NAME...]", nargs=-1, required=True)
@options.namespace
@formats("json", "yaml")
@talking
def command(agent: Client, *, words: tuple[str, ...], namespace: str, output: str | None) -> int:
    """Tell all of pods, or of the node.

    Of pods: their containers, what happened to them, and why they are where they are. The decision in the kubelet's
    words, the CPUs, memory and NUMA nodes that are theirs, the files of their cgroups with what each value comes from;
    for a pod that was refused the reasons on the node as it is now, and what would let it in.

    Of the node: its conditions, what it has, what its pods have asked for, its devices and whose they are, what happened.
    """
    kind, _, name = words[0].partition("/")
    tell = _node if kind in NODES else _pod
    if kind in NODES:
        names = ((name,) if name else ()) + words[1:] or _nodes(agent)
    elif words[0] in PODS and len(words) == 1:
        items = agent.get(*listed(namespace, "pods"))["items"]
        names = tuple(one["metadata"]["name"] for one in items)
    else:
        names = pod_names(words)
    parts = []
    for each in names:
        shown, as_text = tell(agent, namespace, each)
        if output is None:
            parts.append(as_text())
        else:
            parts.append((as_json if output == "json" else as_yaml)(shown))
    separators = {"json": "", "yaml": "---\n", None: "\n\n"}
    click.echo(separators[output].join(parts), nl=False)
    return YES


Told = tuple[Mapping[str, Any], Callable[[], str]]
"""What there is to tell, for programs and as text."""


def _pod(agent: Client, namespace: str, name: str) -> Told:
    pod = agent.get(*pod_route(namespace, name))
    why = agent.get("nodewright/v1/namespaces", namespace, "pods", name, "why")
    events = [
        one
        for one in agent.get(*listed(namespace, "events"), pod=name)["items"]
        if one["involvedObject"]["uid"] == pod["metadata"]["uid"]
    ]
    facts = {key: value for key, value in why.items() if key != "text"}
    shown = {"pod": pod, "why": facts, "events": events}
    return shown, lambda: describe_text(decoded([pod])[0], events, why, now())


def _nodes(agent: Client) -> tuple[str, ...]:
    return tuple(one["metadata"]["name"] for one in agent.get("api/v1/nodes")["items"])


def _node(agent: Client, _namespace: str, name: str) -> Told:
    node = agent.get("api/v1/nodes", name)
    pods = agent.get(*listed(None, "pods"))["items"]
    events = [
        one for one in agent.get(*listed(None, "events"))["items"] if one["involvedObject"]["kind"] == "Node"
    ]
    listing = agent.get(PROFILE_ROUTE)["spec"].get("devices") or {}
    shown = {"node": node, "devices": listing, "events": events}
    devices = {name: [decode(one, Device) for one in found] for name, found in listing.items()}
    return shown, lambda: describe_node_text(node, decoded(pods), devices, events, now())
