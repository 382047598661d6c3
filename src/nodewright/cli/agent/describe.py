"""`nodewright describe`: all that an agent knows about pods or the node, with the reasons for each placement."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from nodewright.cli import options
from nodewright.cli.agent.agent_connection import (
    NODE_RESOURCE_NAMES,
    POD_RESOURCE_NAMES,
    list_route,
    now,
    pod_names,
    pod_route,
    with_agent,
)
from nodewright.cli.options import output_option
from nodewright.cluster.client.agent_answers import (
    EventItems,
    NodeItems,
    NodeObject,
    PodItems,
    ProfileObject,
    Why,
    answer,
    decode_answer,
    decode_pods,
)
from nodewright.cluster.client.agent_client import PROFILE_ROUTE, AgentClient
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.kubectl_describe import describe_node_text, describe_pod_text
from nodewright.documents.output.terminal import YES, print_text
from nodewright.model.kubernetes.node_profile import Device


@click.command("describe")
@click.argument("words", metavar="pod|node [NAME...]", nargs=-1, required=True)
@options.namespace_option
@output_option("json", "yaml")
@with_agent
def command(agent: AgentClient, *, words: tuple[str, ...], namespace: str, output: str | None) -> int:
    """Describe pods or the node of the agent.

    Pods: containers, events, and the reasons for the placement: the kubelet's decision, the exclusive CPUs, memory and
    NUMA nodes, the cgroup files with the source of each value; for a refused pod the reasons on the node in its
    current state, and what would let it in.

    The node: conditions, capacity, the requests of its pods, devices and the pods that use them, events.
    """
    kind, _, name = words[0].partition("/")
    describe = _node_description if kind in NODE_RESOURCE_NAMES else _pod_description
    if kind in NODE_RESOURCE_NAMES:
        names = ((name,) if name else ()) + words[1:] or _node_names(agent)
    elif words[0] in POD_RESOURCE_NAMES and len(words) == 1:
        items = answer(agent, PodItems, *list_route(namespace, "pods"))["items"]
        names = tuple(item["metadata"]["name"] for item in items)
    else:
        names = pod_names(words)
    parts = []
    for object_name in names:
        document, as_text = describe(agent, namespace, object_name)
        if output is None:
            parts.append(as_text())
        else:
            parts.append((as_json if output == "json" else as_yaml)(document))
    separators = {"json": "", "yaml": "---\n", None: "\n\n"}
    print_text(separators[output].join(parts))
    return YES


Description = tuple[Mapping[str, Any], Callable[[], str]]
"""The document for JSON and YAML, and the text."""


def _pod_description(agent: AgentClient, namespace: str, name: str) -> Description:
    pod = agent.get(*pod_route(namespace, name))
    decoded = decode_pods([pod])[0]
    why = answer(agent, Why, "nodewright/v1/namespaces", namespace, "pods", name, "why")
    events = [
        event
        for event in answer(agent, EventItems, *list_route(namespace, "events"), pod=name)["items"]
        if event["involvedObject"]["uid"] == decoded.uid
    ]
    facts = {key: value for key, value in why.items() if key != "text"}
    document = {"pod": pod, "why": facts, "events": events}
    return document, lambda: describe_pod_text(decoded, events, why, now())


def _node_names(agent: AgentClient) -> tuple[str, ...]:
    return tuple(node["metadata"]["name"] for node in answer(agent, NodeItems, "api/v1/nodes")["items"])


def _node_description(agent: AgentClient, _namespace: str, name: str) -> Description:
    node = answer(agent, NodeObject, "api/v1/nodes", name)
    pods = answer(agent, PodItems, *list_route(None, "pods"))["items"]
    events = [
        event
        for event in answer(agent, EventItems, *list_route(None, "events"))["items"]
        if event["involvedObject"]["kind"] == "Node"
    ]
    device_documents = answer(agent, ProfileObject, PROFILE_ROUTE)["spec"].get("devices") or {}
    document = {"node": node, "devices": device_documents, "events": events}
    devices = {
        resource: [decode_answer(device, Device) for device in listed]
        for resource, listed in device_documents.items()
    }
    return document, lambda: describe_node_text(node, decode_pods(pods), devices, events, now())
