"""`nodewright cgroups`: the expected value of every cgroup file, compared with the actual one on request."""

from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.node_query import load_query, print_report
from nodewright.cli.workload_input import print_warnings
from nodewright.documents.files.cgroup_files import CGROUP_ROOT, CgroupTree
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES
from nodewright.engine.core.cgroups.cgroup_comparison import (
    CgroupComparison,
    cgroup_comparison,
    files_to_read,
    unknown_pod_cgroups,
)
from nodewright.engine.core.cgroups.cgroup_names import CgroupDriver, QOSCgroupNames, uid_on_node
from nodewright.engine.core.cgroups.cgroup_settings import has_unknown_throttle
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_cgroups import CgroupOverrides, cgroup_tree
from nodewright.engine.node.step import Decision
from nodewright.predict.node import NodeCgroups
from nodewright.predict.node_report.cgroup_report import (
    CgroupReport,
    cgroup_files_report,
    cgroup_names,
    cgroups_text,
    refused_pod,
)


@click.command("cgroups")
@partial(cluster_options, is_about_node=True)
@partial(options.node_query_options, are_bound=True)
@option("--cgroup-version", "Cgroup version. Default: the node's.", type=click.Choice(["1", "2"]))
@option(
    "--cgroup-driver",
    "Cgroup driver. Default: `cgroupDriver` of the KubeletConfiguration.",
    type=click.Choice([driver.value for driver in CgroupDriver]),
)
@option(
    "--linear-weights",
    "The runtime converts shares to weights linearly, as the kubelet does: runc before 1.3.2, crun before 1.23.",
)
@option("--all", "Include the pods that are already on the node.", name="all_pods")
@option(
    "--diff DIR|live",
    f"Compare with an actual cgroup tree (live: {CGROUP_ROOT}); nothing is written.",
    name="tree",
)
@options.output_option("json", "yaml", "name")
def command(  # noqa: PLR0913 - one argument an option
    query: options.NodeQuery,
    *,
    cgroup_version: str | None,
    cgroup_driver: str | None,
    linear_weights: bool,
    all_pods: bool,
    tree: str | None,
    output: str | None,
) -> int:
    """Show the cgroup values of the node, its QoS classes, these pods and their containers, and where each comes from.

    The pods are admitted one after the other, as with admit; refused pods have no cgroups. With -o name one line per
    file: path/file = value. Exit code 0 if all pods are admitted and, with --diff, nothing differs; else 3.
    """
    loaded = load_query(query)
    live = None if tree is None else CgroupTree(CGROUP_ROOT if tree == "live" else Path(tree))
    version = int(cgroup_version) if cgroup_version else live.version if live else None
    overrides = CgroupOverrides(version=version, driver=cgroup_driver, has_linear_runtime=linear_weights)
    created = loaded.created_pods()
    expected = loaded.node.cgroups(
        (workload.pod for workload in created), overrides, include_existing=all_pods
    )
    refused = (result for result in expected.results if result.decision is Decision.REFUSED)
    unknown_throttles = _unknown_throttles(expected)
    report = CgroupReport(
        groups=expected.groups,
        rules=expected.rules,
        config=loaded.node.config,
        refusals=tuple(refused_pod(result.pod, result.kubelet) for result in refused),
        comparison=None if live is None else _comparison(expected, live),
        warnings=(*loaded.warnings, *unknown_throttles),
        skipped=loaded.skipped,
    )
    print_warnings(unknown_throttles, strict=query.strict)
    print_report(_text(report, output), output, loaded.node.config)
    is_equal = report.comparison is None or not report.comparison.differences
    is_equal = is_equal and len(created) == len(loaded.workloads)
    return YES if is_equal and all(result.admitted for result in expected.results) else NO


def _unknown_throttles(expected: NodeCgroups) -> tuple[str, ...]:
    return tuple(
        f"memory.high of the cgroup of pod {result.pod.full_name} is not judged: how Kubernetes 1.37 computes it is "
        "not established"
        for result in expected.results
        if result.admitted and has_unknown_throttle(result.pod, expected.rules)
    )


def _text(report: CgroupReport, output: str | None) -> str:
    if output == "name":
        return cgroup_names(report)
    if output is None:
        return cgroups_text(report)
    return (as_json if output == "json" else as_yaml)(cgroup_files_report(report))


def _comparison(expected: NodeCgroups, live: CgroupTree) -> CgroupComparison:
    """The values that differ in the tree, and its cgroups of unknown pods."""
    rules, tree = expected.rules, cgroup_tree(expected.node.config)
    texts = {
        group.path: live.read_files(group.path, files_to_read(group, rules.version), group.container_id)
        for group in expected.groups
    }
    comparison = cgroup_comparison(expected.groups, texts, rules)
    if not tree.cgroups_per_qos:
        return comparison
    parents = QOSCgroupNames.for_root(tree.root)
    below = {
        path: live.child_names(path)
        for path in {parents.for_class(qos_class).path(rules.driver) for qos_class in QOSClass}
    }
    known = {uid_on_node(pod) for pod in expected.node.pods}
    unknown = unknown_pod_cgroups(below, known, parents, rules)
    return replace(comparison, differences=(*comparison.differences, *unknown))
