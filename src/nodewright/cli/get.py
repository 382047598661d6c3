"""`nodewright get`: the pods, the node and what happened, as an agent knows them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from nodewright.api.client import Client, RefusedError
from nodewright.cli.app import ERROR, YES
from nodewright.cli.options import output as formats
from nodewright.cli.talking import NODES, PODS, decoded, listed, now, pod_route, scoped, talking
from nodewright.model.objects import Pod
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.listing import events_table, nodes_table, pods_table
from nodewright.render.pod_rows import HEADERS, WIDE_HEADERS, pod_row

EVENTS = ("events", "event", "ev")


@click.command("get")
@click.argument("what", metavar="pods|node|events")
@click.argument("names", nargs=-1)
@scoped
@click.option("-w", "--watch", is_flag=True, help="Go on and tell what changes (pods only).")
@formats("json", "yaml", "wide", "name")
@talking
def command(
    agent: Client,
    *,
    what: str,
    names: tuple[str, ...],
    scope: str | None,
    watch: bool,
    output: str | None,
) -> int:
    """List what an agent knows, in kubectl's columns: pods, the node, events.

    SOURCE says where a pod comes from: `file` and `http` are static pods, which nothing pushes out; `workload` is the
    directory of ordinary pods, `api` what `nodewright run` asked for. With -o wide: CPUs and NUMA nodes of its own.
    """
    kind, _, name = what.partition("/")
    names = (name, *names) if name else names
    if kind in PODS:
        if watch:
            return _watch(agent, scope, names, output)
        return _pods(agent, scope, names, output)
    if watch:
        raise click.UsageError("only pods can be watched")
    if kind in NODES:
        items = agent.get("api/v1/nodes")["items"]
        if names:
            items = [agent.get("api/v1/nodes", each) for each in names]
        _show(items, output, "node", lambda wide: nodes_table(items, now(), wide=wide))
        return YES
    if kind in EVENTS:
        items = agent.get(*listed(scope, "events"))["items"]
        if not items and output is None:
            click.echo("No events found.", err=True)
            return YES
        _show(items, output, "event", lambda _: events_table(items, now(), with_namespace=scope is None))
        return YES
    raise click.UsageError(f"{what!r} is none of pods, node, events")


def _pods(agent: Client, scope: str | None, names: Sequence[str], output: str | None) -> int:
    """The pods, or those of these names; names that are not there are told."""
    code = YES
    if names:
        items = []
        for each in names:
            try:
                items.append(agent.get(*pod_route(scope or "default", each)))
            except RefusedError as error:
                click.echo(f"Error from agent {error}", err=True)
                code = ERROR
        if not items:
            return code
    else:
        items = agent.get(*listed(scope, "pods"))["items"]
    if not items and output in (None, "wide"):
        where = "" if scope is None else f" in {scope} namespace"
        click.echo(f"No resources found{where}.", err=True)
        return code
    pods = decoded(items)
    _show(
        items,
        output,
        "pod",
        lambda wide: pods_table(pods, now(), wide=wide, with_namespace=scope is None),
        is_one=len(names) == 1,
    )
    return code


def _watch(agent: Client, scope: str | None, names: Sequence[str], output: str | None) -> int:
    """The pods, then a line for each change of what is shown."""
    lines = _Lines(is_wide=output == "wide", has_namespace=scope is None)
    there = decoded(agent.get(*listed(scope, "pods"))["items"])
    lines.measure([pod for pod in there if not names or pod.metadata.name in names])
    for line in agent.lines(*listed(scope, "pods"), watch=True):
        seen = json.loads(line) if line.strip() else None
        if seen is None or (names and seen["object"]["metadata"]["name"] not in names):
            continue
        if output in ("json", "yaml", "name"):
            _show([seen["object"]], output, "pod", lambda _: "", is_one=True)
        else:
            click.echo(lines.text(decoded([seen["object"]])[0], is_gone=seen["type"] == "DELETED"), nl=False)
    return YES


class _Lines:
    """A table that grows: what was printed stays."""

    def __init__(self, *, is_wide: bool, has_namespace: bool) -> None:
        self._is_wide, self._has_namespace = is_wide, has_namespace
        self._headers: tuple[str, ...] = WIDE_HEADERS if is_wide else HEADERS
        if has_namespace:
            self._headers = ("NAMESPACE", *self._headers)
        self._widths = [len(header) for header in self._headers]
        self._shown: dict[str, tuple[str, ...]] = {}
        self._has_begun = False

    def measure(self, pods: Sequence[Pod]) -> None:
        """Make room for these."""
        for pod in pods:
            self._fit(self._row(pod))

    def text(self, pod: Pod, *, is_gone: bool) -> str:
        """The line of a pod, unless it says what the last one of it said; the headers before the first of all."""
        row = self._row(pod)
        # Ages change all the time: they alone are not worth a line.
        essence = tuple(cell for header, cell in zip(self._headers, row, strict=True) if header != "AGE")
        if self._shown.get(pod.uid) == essence and not is_gone:
            return ""
        self._shown[pod.uid] = essence
        self._fit(row)
        lines = [row] if self._has_begun else [self._headers, row]
        self._has_begun = True
        return "".join(f"{self._padded(line)}\n" for line in lines)

    def _row(self, pod: Pod) -> tuple[str, ...]:
        row = pod_row(pod, now(), wide=self._is_wide)
        return (pod.metadata.namespace, *row) if self._has_namespace else row

    def _fit(self, row: Sequence[str]) -> None:
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def _padded(self, row: Sequence[str]) -> str:
        cells = (cell.ljust(width) for cell, width in zip(row, self._widths, strict=True))
        return "   ".join(cells).rstrip()


def _show(
    items: Sequence[Mapping[str, Any]], output: str | None, kind: str, as_table: Any, *, is_one: bool = False
) -> None:
    """The objects in the format asked for; one that was named stands alone, several in a List."""
    if output == "name":
        click.echo("".join(f"{kind}/{one['metadata']['name']}\n" for one in items), nl=False)
    elif output in ("json", "yaml"):
        several = {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {}}
        click.echo((as_json if output == "json" else as_yaml)(items[0] if is_one else several), nl=False)
    else:
        click.echo(as_table(output == "wide"), nl=False)
