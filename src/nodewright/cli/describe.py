"""`nodewright describe`: a pod with all that an agent knows of it, and why it is where it is."""

import click

from nodewright.api.client import Client
from nodewright.cli import options
from nodewright.cli.app import YES
from nodewright.cli.options import output as formats
from nodewright.cli.talking import PODS, decoded, listed, now, pod_names, pod_route, talking
from nodewright.render.describe import describe_text
from nodewright.render.documents import as_json, as_yaml


@click.command("describe")
@click.argument("words", metavar="pod [NAME...]", nargs=-1, required=True)
@options.namespace
@formats("json", "yaml")
@talking
def command(agent: Client, *, words: tuple[str, ...], namespace: str, output: str | None) -> int:
    """Tell all of pods: their containers, what happened to them, and why they are where they are.

    The decision in the kubelet's words, the CPUs, memory and NUMA nodes that are theirs, the files of their cgroups with
    what each value comes from; for a pod that was refused the reasons on the node as it is now, and what would let it in.
    """
    if words[0] in PODS and len(words) == 1:
        items = agent.get(*listed(namespace, "pods"))["items"]
        names = tuple(one["metadata"]["name"] for one in items)
    else:
        names = pod_names(words)
    parts = []
    for name in names:
        pod = agent.get(*pod_route(namespace, name))
        why = agent.get("nodewright/v1/namespaces", namespace, "pods", name, "why")
        events = [
            one
            for one in agent.get(*listed(namespace, "events"), pod=name)["items"]
            if one["involvedObject"]["uid"] == pod["metadata"]["uid"]
        ]
        if output is None:
            parts.append(describe_text(decoded([pod])[0], events, why, now()))
        else:
            facts = {key: value for key, value in why.items() if key != "text"}
            shown = {"pod": pod, "why": facts, "events": events}
            parts.append((as_json if output == "json" else as_yaml)(shown))
    separators = {"json": "", "yaml": "---\n", None: "\n\n"}
    click.echo(separators[output].join(parts), nl=False)
    return YES
