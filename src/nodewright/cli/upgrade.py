"""`nodewright upgrade`: what another release of the kubelet changes on a node, on its pods and for manifests to come."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.node_query import known_claims
from nodewright.cli.options import ManifestOptions, filename_options
from nodewright.cli.workload_input import print_input_notes, print_warnings, read_workloads
from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_text
from nodewright.documents.profiles.kubelet_config_files import config_document
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.fleet.load.fleet_input import bound_profiles
from nodewright.model.releases.release_table import NEWEST
from nodewright.predict.upgrade.release_facts import UpgradeCase
from nodewright.predict.upgrade.upgrade_input import (
    NodeSource,
    cases_of_nodes,
    known_release,
    node_case,
    release_of,
)
from nodewright.predict.upgrade.upgrade_report import (
    NodesUpgraded,
    UpgradeReport,
    compared_releases,
    upgrade_names,
    upgrade_report,
    upgrade_text,
)


class UpgradeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command line, named as its parameters."""

    start: str | None
    end: str
    node: str | None
    nodes: tuple[str, ...]
    kubelet_config: str | None
    kubelet_root: Path | None
    pods: Path | None
    namespace: str
    strict: bool

    def check(self) -> None:
        """Checks that options of one node are not used with many.

        Errors: click.UsageError.
        """
        single = ("node", "kubelet_root", "pods")
        if self.nodes and (given := [name for name in single if getattr(self, name) is not None]):
            raise click.UsageError(f"--{given[0].replace('_', '-')} is for one node, not for --nodes")


@click.command("upgrade")
@partial(cluster_options, is_about_node=True)
@partial(filename_options, required=False)
@option("--from R", "The release that the nodes run. Default: each node's own.", name="start")
@option("--to R", "The release to compare with.", name="end", default=NEWEST.name)
@options.node_option()
@option(
    "--nodes FILE|DIR",
    "Many nodes: NodeProfiles, or a cluster's Nodes and Pods as of `kubectl get nodes,pods -A -o json`. "
    "Repeatable.",
    multiple=True,
)
@options.kubelet_config_option()
@options.kubelet_root_option(
    "Directory with the state files, config.yaml and kubeadm-flags.env: /var/lib/kubelet or a copy."
)
@options.pod_list_option(
    "The running pods: output of `kubectl get pods -A -o json`. Default: those of the node's profile."
)
@options.namespace_option
@options.strict_option
@options.output_option("json", "yaml", "wide", "name")
def command(manifests: ManifestOptions, *, output: str | None, **parameters: object) -> int:
    """Show what an upgrade of the kubelet changes on a node, worst first, why, and what to do.

    Both releases restart on the node's state files, admit its pods and then those of -f; every value that differs is
    reported with the change that makes it. Nothing is written. With -o name the nodes that lose something. Exit code
    3 if anything is lost: the start, a pod, its CPUs, memory or devices, or an admission.
    """
    query = msgspec.convert(parameters, UpgradeQuery)
    query.check()
    end = known_release(query.end, "--to")
    if query.start is not None:
        known_release(query.start, "--from", may_be_older=True)
    cases, warnings = _cases(query, manifests)
    comparisons: list[NodesUpgraded] = []
    for case in cases:
        start, release_warnings = release_of(case.profile, case.source)
        warnings = (*warnings, *(text for text in release_warnings if text not in warnings))
        comparisons.append(compared_releases(case, start, end))
    print_warnings(warnings, strict=query.strict)
    print_text(_text(upgrade_report(comparisons, warnings), output))
    return NO if any(comparison.loses for comparison in comparisons) else YES


def _cases(query: UpgradeQuery, files: ManifestOptions) -> tuple[Sequence[UpgradeCase], tuple[str, ...]]:
    """The nodes with the pods of the manifests, and warnings."""
    workloads: tuple[Workload, ...] = ()
    claims: ClaimCluster | None = None
    if files.filenames:
        loaded = read_workloads(files, query.namespace)
        print_input_notes(loaded, loaded.warnings, strict=query.strict)
        workloads, claims = tuple(loaded.workloads), known_claims(loaded)
    if query.nodes:
        configuration = None if query.kubelet_config is None else config_document(query.kubelet_config)
        cases, warnings = cases_of_nodes(
            query.nodes,
            start=query.start,
            read_dumps=lambda paths: bound_profiles(paths, configuration),
        )
        return [replace(case, manifests=workloads, claims=claims) for case in cases], warnings
    source = NodeSource(
        node=query.node,
        start=query.start,
        kubelet_config=query.kubelet_config,
        kubelet_root=query.kubelet_root,
        pods=query.pods,
    )
    return [replace(node_case(source), manifests=workloads, claims=claims)], ()


def _text(report: UpgradeReport, output: str | None) -> str:
    if output == "name":
        return upgrade_names(report)
    if output in ("json", "yaml"):
        return (as_json if output == "json" else as_yaml)(report)
    return upgrade_text(report, wide=output == "wide")
