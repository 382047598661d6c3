"""`nodewright rehearse`: whether the kubelet starts with a configuration on state files, and which pods it rejects."""

from functools import partial
from pathlib import Path

import click

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.options import max_document_size_option
from nodewright.cli.workload_input import print_warnings
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_message, print_text
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.predict.rehearsal import (
    RehearsedRestart,
    RestartQuery,
    rehearsal_names,
    rehearsal_report,
    rehearsal_text,
    rehearsed_restart,
)


@click.command("rehearse")
@partial(cluster_options, takes_node=True, is_about_node=True)
@options.node_option()
@option(
    "--config FILE",
    "The KubeletConfiguration to start with. Default: config.yaml in --kubelet-root, else the node's own.",
    type=options.FILE,
)
@options.kubelet_root_option(
    "Directory with the state files: /var/lib/kubelet or a copy. Default: the allocations of the node's pods."
)
@options.pod_list_option(
    "The running pods: output of `kubectl get pods -A -o json`. Default: those of the node's profile."
)
@options.release_option
@options.strict_option
@max_document_size_option
@options.output_option("json", "yaml", "wide", "name")
def command(  # noqa: PLR0913 - one argument an option
    node: str | None,
    config: Path | None,
    kubelet_root: Path | None,
    pods: Path | None,
    *,
    release: str | None,
    strict: bool,
    max_bytes: int,
    output: str | None,
) -> int:
    """Check whether a kubelet restart succeeds and which pods it rejects.

    Prints what to do if the kubelet does not start. Nothing is written. With -o name only the rejected pods. Exit
    code 0 if it starts and keeps all pods, 3 if not.
    """
    del max_bytes  # Accepted for uniformity: the files of a node are read whole.
    query = RestartQuery(
        profile=find_profile(node, release=release),
        source=node or "this machine",
        config=config,
        root=kubelet_root,
        pods=pods,
    )
    restart = rehearsed_restart(query)
    print_warnings(restart.warnings, strict=strict)
    for warning in restart.pod_warnings:
        print_message(warning)
    print_text(_text(restart, output))
    return YES if restart.rehearsal.is_clean else NO


def _text(restart: RehearsedRestart, output: str | None) -> str:
    if output == "name":
        return rehearsal_names(restart.rehearsal)
    if output in ("json", "yaml"):
        return (as_json if output == "json" else as_yaml)(rehearsal_report(restart))
    return rehearsal_text(restart, wide=output == "wide")
