"""`nodewright audit`: compares the state files, sockets and cgroups of a live node."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from nodewright.agent.store.store_files import agent_directory
from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.cluster.client.agent_client import DEFAULT_SOCKET
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import ERROR, NO, YES, print_message, print_text
from nodewright.documents.profiles.kubelet_root import DEFAULT_ROOT_DIRECTORY
from nodewright.model.kubernetes.resource_names import CPU, is_extended
from nodewright.predict.audit.audit_comparison import audit_of
from nodewright.predict.audit.audit_evidence import AuditResult, EvidenceSource, UncomparedReason
from nodewright.predict.audit.audit_report import (
    ClusterEvidence,
    audit_report,
    audit_text,
    cluster_audit,
    uncompared_sentence,
)
from nodewright.predict.audit.evidence_sources import AuditOptions, gather_evidence
from nodewright.predict.node import Node

if TYPE_CHECKING:
    from nodewright.cluster.objects.node_sources import ClusterNode

_OF_MACHINE = ("pod_resources", "pods", "socket", "cgroup_root")
AGENT_ROOT = Path("/var/lib/nodewright")


@click.command("audit")
@partial(cluster_options, takes_node=True)
@options.kubelet_root_option(
    "Directory with state files: the kubelet's, or the agent's. Default: the agent's if it exists, else the kubelet's.",
    alias="--root-dir",
    must_exist=False,
)
@options.pod_resources_option(
    "PodResources socket. Default: pod-resources/kubelet.sock in --kubelet-root, if it exists."
)
@option(
    "--cgroups DIR|live|none",
    "Cgroup files: a copy of the tree, or this machine's. Default: live.",
    default="live",
    show_default=False,
)
@option("--cgroup-root PATH", "Parent of all cgroups. Default: as configured.")
@options.pod_list_option()
@options.node_name_option()
@options.agent_socket_option("Socket of a running agent, to read its pods.")
@options.kubelet_config_option(
    "KubeletConfiguration. Default: config.yaml in --kubelet-root.", kind=options.FILE
)
@options.configz_option()
@options.node_option()
@options.output_option("json", "yaml")
def command(*, output: str | None, kubelet_root: Path | None, **sources: Any) -> int:
    """Compare the sources of a live node: state files, PodResources, cgroup files and the API's pods.

    Of a cluster's node (`audit node/worker-3`): the API's pods, the kubelet's pods, the Node object, the configuration.
    Prints each discrepancy, what it means and what to do. Nothing is written; it works while a kubelet runs, and with
    a nodewright agent, running or not. Each source is optional; comparisons that were not made are listed. Without
    options it looks for an agent on this machine, then for a kubelet. Exit code 3 for a discrepancy; 1 if there is
    none, but a specified source could not be read; else 0.
    """
    audit_options = AuditOptions(root=kubelet_root, **sources)
    node = current_session().nodes.get(audit_options.node or "")
    if node is not None and not any((kubelet_root, *map(sources.get, _OF_MACHINE))):
        return _report(cluster_audit(_cluster_evidence(node)), output)
    audit_options = _with_defaults(audit_options)
    stored_agent = agent_directory(audit_options.root)
    gathered = gather_evidence(replace(audit_options, stored_agent=stored_agent))
    audit = audit_of(gathered.evidence)
    audit = replace(audit, uncompared=(*gathered.gaps, *audit.uncompared))
    return _report(audit, output, has_unreadable_source=gathered.has_unreadable_source)


def _report(audit: AuditResult, output: str | None, *, has_unreadable_source: bool = False) -> int:
    """Prints the audit and returns the exit code."""
    if output:
        print_text((as_json if output == "json" else as_yaml)(audit_report(audit)))
    else:
        print_text(audit_text(audit))
        for gap in audit.uncompared:
            is_unreadable = gap.reason is UncomparedReason.NOT_READ
            print_message(("warning: " if is_unreadable else "") + uncompared_sentence(gap))
    if audit.discrepancies:
        return NO
    if not audit.compared_count:
        print_message("error: nothing to compare: specify at least two sources")
    return YES if audit.compared_count and not has_unreadable_source else ERROR


def _cluster_evidence(node: "ClusterNode") -> ClusterEvidence:
    """What the cluster reports about the node."""
    from nodewright.cluster.objects.node_sources import API_PODS, CONFIGZ, KUBELET_PODS  # noqa: PLC0415 - an extra

    evidence_sources = {
        API_PODS: EvidenceSource.PODS,
        KUBELET_PODS: EvidenceSource.KUBELET,
        CONFIGZ: EvidenceSource.CONFIGURATION,
    }
    profile = node.profile
    without_reported = replace(profile, spec=replace(profile.spec, allocatable={}, pods=(), allocations=None))
    computed = Node.from_profile(without_reported, source=profile.metadata.name).config.view.allocatable
    return ClusterEvidence(
        pods=node.api_pods,
        kubelet_pods=node.kubelet_pods,
        reported_allocatable={
            name: amount.milli_value() if name == CPU else amount.value()
            for name, amount in node.allocatable.items()
            if not is_extended(name)
        },
        computed_allocatable=computed,
        errors={
            evidence_sources[source.name]: source.error
            for source in profile.spec.sources
            if source.error and source.name in evidence_sources
        },
    )


def _with_defaults(audit_options: AuditOptions) -> AuditOptions:
    """With the agent or the kubelet of this machine, if no source is specified."""
    if audit_options.root or audit_options.pods or audit_options.socket or audit_options.pod_resources:
        return audit_options
    for root in (AGENT_ROOT, DEFAULT_ROOT_DIRECTORY):
        if root.is_dir():
            socket = DEFAULT_SOCKET if root == AGENT_ROOT and DEFAULT_SOCKET.exists() else None
            return replace(audit_options, root=root, socket=socket)
    return audit_options
