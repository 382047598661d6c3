"""`nodewright cgroups`: what every cgroup file should say, and whether it does."""

from pathlib import Path

import click
from msgspec.structs import replace

from nodewright.ask import Cgroups
from nodewright.cli import options
from nodewright.cli.app import NO, YES
from nodewright.cli.opening import opened, show
from nodewright.core.cgroups.compare import Comparison, compared, files_to_read, strangers
from nodewright.core.cgroups.names import Driver, Parents, uid_on_node
from nodewright.core.requests import QOSClass
from nodewright.node.cgroups import Wish, cgroup_tree
from nodewright.node.step import Decision
from nodewright.render.cgroups import (
    CgroupReport,
    Refusal,
    cgroup_names,
    cgroups_document,
    cgroups_text,
)
from nodewright.render.documents import as_json, as_yaml
from nodewright.world.cgroup_files import LIVE
from nodewright.world.cgroups import CgroupTree


@click.command("cgroups")
@options.question
@click.option(
    "--cgroup-version", type=click.Choice(["1", "2"]), help="Version of cgroups. Default: the node's."
)
@click.option(
    "--cgroup-driver",
    type=click.Choice([driver.value for driver in Driver]),
    help="Who makes cgroups. Default: `cgroupDriver` of the kubelet's configuration.",
)
@click.option(
    "--linear-weights",
    is_flag=True,
    help="The runtime makes weights of shares as the kubelet does: runc before 1.3.2, crun before 1.23.",
)
@click.option("--all", "all_pods", is_flag=True, help="The pods that the node has already, too.")
@click.option(
    "--diff",
    "tree",
    metavar="DIR|live",
    help=f"Compare with a tree of cgroups (live: {LIVE}), which is only read.",
)
@options.output("json", "yaml", "name")
def command(  # noqa: PLR0913 - one argument an option
    question: options.Question,
    *,
    cgroup_version: str | None,
    cgroup_driver: str | None,
    linear_weights: bool,
    all_pods: bool,
    tree: str | None,
    output: str | None,
) -> int:
    """Say what the kubelet and the runtime write to the cgroups of the node, its QoS classes, these pods and their
    containers, and where each value comes from.

    The pods arrive one after the other, as with admit; those that are refused have no cgroups. With -o name a line a
    file: path/file = value. Exit code 0 if all pods get in and, with --diff, nothing differs; else 3.
    """
    read = opened(question)
    asked = read.node
    live = None if tree is None else CgroupTree(LIVE if tree == "live" else Path(tree))
    version = int(cgroup_version) if cgroup_version else live.version if live else None
    wish = Wish(version=version, driver=cgroup_driver, has_linear_runtime=linear_weights)
    found = asked.cgroups((one.pod for one in read.workloads), wish, own_too=all_pods)
    refused = (one for one in found.answers if one.decision is Decision.REFUSED)
    report = CgroupReport(
        groups=found.groups,
        rules=found.rules,
        config=asked.config,
        refusals=tuple(Refusal(pod=one.pod, kubelet=one.kubelet) for one in refused),
        comparison=None if live is None else _comparison(found, live),
        warnings=read.warnings,
        skipped=read.skipped,
    )
    show(_text(report, output), output, asked.config)
    is_as_it_should_be = report.comparison is None or not report.comparison.differences
    return YES if is_as_it_should_be and all(one.admitted for one in found.answers) else NO


def _text(report: CgroupReport, output: str | None) -> str:
    if output == "name":
        return cgroup_names(report)
    if output is None:
        return cgroups_text(report)
    return (as_json if output == "json" else as_yaml)(cgroups_document(report))


def _comparison(found: Cgroups, live: CgroupTree) -> Comparison:
    """Where the tree says something else, and whose groups it has besides."""
    rules, tree = found.rules, cgroup_tree(found.node.config)
    texts = {
        group.path: live.texts(group.path, files_to_read(group, rules.version), group.container_id)
        for group in found.groups
    }
    came_out = compared(found.groups, texts, rules)
    if not tree.per_qos:
        return came_out
    parents = Parents.below(tree.root)
    below = {
        path: live.names_below(path)
        for path in {parents.of(decided).path(rules.driver) for decided in QOSClass}
    }
    known = {uid_on_node(pod) for pod in found.node.pods}
    unknown = strangers(below, known, parents, rules)
    return replace(came_out, differences=(*came_out.differences, *unknown))
