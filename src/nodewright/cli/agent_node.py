"""The machine that an agent runs on, as a node that has no pods."""

import os
import platform
import socket
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.cli.agent_settings import Settings, cgroup_root, feature_gates
from nodewright.model.profile import NodeProfile
from nodewright.render.running import NodeSheet
from nodewright.world.kubelet_config import config_document
from nodewright.world.machine.capture import capture_here
from nodewright.world.machine.files import this_machine
from nodewright.world.machine.host import cgroup_version
from nodewright.world.nodes import find_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode:
    """What the agent is a kubelet of."""

    profile: NodeProfile
    node: Node
    cgroup_root: str


def agent_node(told: Settings) -> AgentNode:
    """The machine that we run on, or the one that is described, with the configuration that the command line says.

    Errors: InputError with all that is wrong with the configuration; WorldError if the machine cannot be read.
    """
    document = config_document(told.config, config_dir=told.config_dir)
    if told.node is None and cgroup_version(this_machine()) == 1:
        # A kubelet has to be told so; who starts this agent on such a machine means it.
        document.setdefault("failCgroupV1", False)
    profile = capture_here(document).profile if told.node is None else _described(told, document)
    document = dict(profile.spec.kubelet_configuration)
    document["cgroupRoot"] = root = cgroup_root(told, document)
    document["featureGates"] = {**(document.get("featureGates") or {}), **feature_gates(told)}
    metadata = replace(profile.metadata, name=told.node_name or profile.metadata.name)
    labels = {**profile.spec.labels, "kubernetes.io/hostname": metadata.name}
    spec = replace(
        profile.spec,
        kubelet_configuration=document,
        kubelet_defects=told.kubelet_defects,
        labels=labels,
    )
    profile = replace(profile, metadata=metadata, spec=spec)
    node = Node.of(profile, source=str(told.config or told.node or "this machine"))
    return AgentNode(profile=profile, node=node, cgroup_root=root)


def _described(told: Settings, document: dict[str, Any]) -> NodeProfile:
    """A node that is described, with the configuration of the command line if that has one."""
    profile = find_profile(told.node)
    if told.config is None and told.config_dir is None:
        return profile
    return replace(profile, spec=replace(profile.spec, kubelet_configuration=document))


def sheet(started_ns: int, runtime: str) -> NodeSheet:
    """What this machine says of itself.

    Units: started_ns in nanoseconds since 1970.
    """
    machine = os.uname()
    return NodeSheet(
        version=f"v1.36.0+nodewright-{version('nodewright')}",
        started_ns=started_ns,
        runtime=runtime,
        kernel=machine.release,
        os_image=_os_image(),
        host_ip=host_address(),
    )


def host_address() -> str:
    """The address that this machine has for those outside; empty where there is no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel only says from where it would be.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
