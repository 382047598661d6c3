"""`nodewright get` and `nodewright top`: the pods, the node, the events and the usage of an agent, as tables."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from nodewright.cli.agent.agent_connection import (
    NODE_RESOURCE_NAMES,
    POD_RESOURCE_NAMES,
    list_route,
    now,
    pod_route,
    scope_options,
    with_agent,
)
from nodewright.cli.options import output_option
from nodewright.cluster.client.agent_answers import (
    EventItems,
    NodeItems,
    NodeObject,
    PodItems,
    Usage,
    WatchedPod,
    answer,
    checked_answer,
    decode_pods,
)
from nodewright.cluster.client.agent_client import AgentClient, AgentStatusError
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.kubectl_tables import (
    POD_HEADERS,
    WIDE_POD_HEADERS,
    events_table,
    node_usage_table,
    nodes_table,
    pod_row,
    pod_usage_table,
    pods_table,
)
from nodewright.documents.output.terminal import ERROR, YES, print_message, print_text
from nodewright.model.errors import JSON_ERRORS, HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import printable_lines

EVENTS = ("events", "event", "ev")


@click.command("get")
@click.argument("what", metavar="pods|node|events")
@click.argument("names", nargs=-1)
@scope_options
@option("-w, --watch", "After the list, print changes (pods only).")
@output_option("json", "yaml", "wide", "name")
@with_agent
def get_command(
    agent: AgentClient,
    *,
    what: str,
    names: tuple[str, ...],
    scope: str | None,
    watch: bool,
    output: str | None,
) -> int:
    """List the agent's pods, node or events, in kubectl's columns.

    SOURCE is the source of a pod: `file` and `http` are static pods, which are never preempted; `workload` is the
    directory of ordinary pods, `api` is `nodewright run`. With -o wide: exclusive CPUs and NUMA nodes.
    """
    kind, _, name = what.partition("/")
    names = (name, *names) if name else names
    if kind in POD_RESOURCE_NAMES:
        if watch:
            return _watch(agent, scope, names, output)
        return _pods(agent, scope, names, output)
    if watch:
        raise click.UsageError("only pods can be watched")
    if kind in NODE_RESOURCE_NAMES:
        items = answer(agent, NodeItems, "api/v1/nodes")["items"]
        if names:
            items = [answer(agent, NodeObject, "api/v1/nodes", node_name) for node_name in names]
        _print_objects(items, output, "node", lambda wide: nodes_table(items, now(), wide=wide))
        return YES
    if kind in EVENTS:
        items = answer(agent, EventItems, *list_route(scope, "events"))["items"]
        if not items and output is None:
            print_message("No events found.")
            return YES
        _print_objects(
            items, output, "event", lambda _: events_table(items, now(), with_namespace=scope is None)
        )
        return YES
    raise click.UsageError(f"{what!r} is not one of pods, node, events")


def _pods(agent: AgentClient, scope: str | None, names: Sequence[str], output: str | None) -> int:
    """Prints the pods, or those with these names; reports names without a pod."""
    code = YES
    if names:
        items = []
        for name in names:
            try:
                items.append(agent.get(*pod_route(scope or "default", name)))
            except AgentStatusError as error:
                print_message(f"Error from agent {error}")
                code = ERROR
        if not items:
            return code
    else:
        items = answer(agent, PodItems, *list_route(scope, "pods"))["items"]
    if not items and output in (None, "wide"):
        place = "" if scope is None else f" in {scope} namespace"
        print_message(f"No resources found{place}.")
        return code
    pods = decode_pods(items)
    _print_objects(
        items,
        output,
        "pod",
        lambda wide: pods_table(pods, now(), wide=wide, with_namespace=scope is None),
        is_one=len(names) == 1,
    )
    return code


def _watch(agent: AgentClient, scope: str | None, names: Sequence[str], output: str | None) -> int:
    """Prints a line for each pod, then for each change of its columns."""
    table = _WatchTable(is_wide=output == "wide", has_namespace=scope is None)
    pods = decode_pods(answer(agent, PodItems, *list_route(scope, "pods"))["items"])
    table.fit_columns([pod for pod in pods if not names or pod.metadata.name in names])
    for line in agent.stream_lines(*list_route(scope, "pods"), watch=True):
        try:
            event = checked_answer(json.loads(line), WatchedPod) if line.strip() else None
        except JSON_ERRORS as error:
            raise HostError("watch the pods of", "the agent", f"no JSON: {error}") from None
        if event is None or (names and event["object"]["metadata"]["name"] not in names):
            continue
        if output in ("json", "yaml", "name"):
            _print_objects([event["object"]], output, "pod", lambda _: "", is_one=True)
        else:
            (pod,) = decode_pods([event["object"]])
            print_text(table.changed_line(pod, is_deleted=event["type"] == "DELETED"))
    return YES


class _WatchTable:
    """A table to which rows are appended, with columns that only widen."""

    def __init__(self, *, is_wide: bool, has_namespace: bool) -> None:
        self._is_wide, self._has_namespace = is_wide, has_namespace
        self._headers: tuple[str, ...] = WIDE_POD_HEADERS if is_wide else POD_HEADERS
        if has_namespace:
            self._headers = ("NAMESPACE", *self._headers)
        self._widths = [len(header) for header in self._headers]
        self._printed: dict[str, tuple[str, ...]] = {}
        self._has_headers = False

    def fit_columns(self, pods: Sequence[Pod]) -> None:
        """Widens the columns for these pods."""
        for pod in pods:
            self._fit(self._row(pod))

    def changed_line(self, pod: Pod, *, is_deleted: bool) -> str:
        """The line of a pod; empty if it equals the pod's last one. The headers precede the first line."""
        row = self._row(pod)
        # A change of the age alone is not printed.
        content = tuple(cell for header, cell in zip(self._headers, row, strict=True) if header != "AGE")
        if self._printed.get(pod.uid) == content and not is_deleted:
            return ""
        self._printed[pod.uid] = content
        self._fit(row)
        rows = [row] if self._has_headers else [self._headers, row]
        self._has_headers = True
        return printable_lines(self._padded(cells) for cells in rows)

    def _row(self, pod: Pod) -> tuple[str, ...]:
        row = pod_row(pod, now(), wide=self._is_wide)
        return (pod.metadata.namespace, *row) if self._has_namespace else row

    def _fit(self, row: Sequence[str]) -> None:
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def _padded(self, row: Sequence[str]) -> str:
        cells = (cell.ljust(width) for cell, width in zip(row, self._widths, strict=True))
        return "   ".join(cells).rstrip()


def _print_objects(
    items: Sequence[Mapping[str, Any]], output: str | None, kind: str, as_table: Any, *, is_one: bool = False
) -> None:
    """Prints the objects in this format; several as a List."""
    if output == "name":
        print_text(printable_lines(f"{kind}/{item['metadata']['name']}" for item in items))
    elif output in ("json", "yaml"):
        object_list = {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {}}
        print_text((as_json if output == "json" else as_yaml)(items[0] if is_one else object_list))
    else:
        print_text(as_table(output == "wide"))


@click.command("top")
@click.argument("what", metavar="pods|node")
@scope_options
@option("--containers", "Print a line per container (pods only).")
@output_option("json", "yaml")
@with_agent
def top_command(
    agent: AgentClient, *, what: str, scope: str | None, containers: bool, output: str | None
) -> int:
    """Show the current usage of pods or the node.

    CPU is measured over a short interval, in thousandths of a CPU; memory is the working set.
    """
    if what not in (*POD_RESOURCE_NAMES, "node", "nodes", "no"):
        raise click.UsageError(f"{what!r} is not one of pods, node")
    usage = answer(agent, Usage, "nodewright/v1/usage")
    pods = [pod for pod in usage["pods"] if scope is None or pod["namespace"] == scope]
    if output is not None:
        document = {"pods": pods} if what in POD_RESOURCE_NAMES else {"node": usage["node"]}
        print_text((as_json if output == "json" else as_yaml)(document))
    elif what not in POD_RESOURCE_NAMES:
        print_text(node_usage_table(usage["node"]))
    elif not pods:
        print_message("No resources found.")
    else:
        print_text(pod_usage_table(pods, with_namespace=scope is None, by_container=containers))
    return YES
