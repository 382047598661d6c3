"""The agent's node: this machine or a described one, without pods; the options of its Node object, and its pod sources."""

import ipaddress
import json
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.assembly.agent_settings import (
    AgentSettings,
    cgroup_root,
    feature_gates,
    manifest_request,
    static_pod_path,
)
from nodewright.agent.host.ports import RuntimeFacts
from nodewright.agent.observe.manifest_sources import SourceListener, watch_directory
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import SourcePodsListed
from nodewright.cluster.tasks.supervision import BackgroundTask
from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.kubelet_config_files import config_document
from nodewright.documents.profiles.kubelet_flags import overridden
from nodewright.documents.profiles.machine.captured_machine import capture_this_machine
from nodewright.documents.profiles.machine.host_facts import cgroup_version, this_machine
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.engine.node.node_cgroups import cgroup_tree
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.name_validation import label_key_errors, label_value_errors
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import TAINT_EFFECTS, Taint
from nodewright.predict.node import Node
from nodewright.version import __version__


class AgentNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node that the agent serves as a kubelet."""

    profile: NodeProfile
    node: Node

    @property
    def own_cgroup(self) -> str:
        """The cgroup that the agent changes, with all below it: the root that it has, or that of all pods."""
        kubelet = self.node.config.parts.kubelet
        if kubelet.cgroup_root.strip("/"):
            return kubelet.cgroup_root
        return cgroup_tree(self.node.config).root.path(kubelet.cgroup_driver)


def agent_node(settings: AgentSettings) -> AgentNode:
    """The local machine, or the described node, with the configuration of the command line.

    Errors: InputError with all faults of the configuration; HostError if the machine cannot be read.
    """
    document = overridden(
        config_document(settings.config, config_dir=settings.config_dir), settings.config_overrides
    )
    if settings.node is None and cgroup_version(this_machine()) == 1:
        # A kubelet needs this setting on cgroup v1; starting the agent on such a machine implies it.
        document.setdefault("failCgroupV1", False)
    profile = (
        capture_this_machine(document).profile
        if settings.node is None
        else _profile_of_settings(settings, document)
    )
    document = dict(profile.spec.kubelet_configuration)
    document["cgroupRoot"] = cgroup_root(settings, document)
    document = overridden(document, [("featureGates", feature_gates(settings))])
    if settings.node is None:
        profile = replace(profile, spec=replace(profile.spec, app_armor=is_app_armor_enabled()))
    metadata = replace(profile.metadata, name=settings.node_name or profile.metadata.name)
    labels = {**profile.spec.labels, "kubernetes.io/hostname": metadata.name}
    if settings.register_node is not None:
        document["registerNode"] = settings.register_node
    spec = replace(
        _joined_spec(settings, replace(profile.spec, labels=labels)),
        kubelet_configuration=document,
        kubelet_defects=settings.kubelet_defects,
        kubernetes_version=settings.release or profile.spec.kubernetes_version,
    )
    if settings.lend:
        spec = replace(spec, policies=replace(spec.policies, predictor=_predictor(settings, document)))
    profile = replace(profile, metadata=metadata, spec=spec)
    node = Node.from_profile(profile, source=str(settings.config or settings.node or "this machine"))
    # An invalid URL is an error now, not each time that it is requested.
    manifest_request(settings, node.config.parts.kubelet)
    return AgentNode(profile=profile, node=node)


def _predictor(settings: AgentSettings, document: dict[str, Any]) -> str:
    """The predictor of --lend.

    Errors: InputError.
    """
    from nodewright.predict.policy_registry import chosen_predictor  # noqa: PLC0415 - for nodes that lend only

    if document.get("cgroupsPerQOS") is False:
        rule = "needs cgroupsPerQOS: BestEffort pods are limited by the cgroup of their class"
        raise InputError([Fault(source="--lend", value=settings.lend, rule=rule)])
    chosen_predictor(settings.lend, "--lend")
    return settings.lend


def _joined_spec(settings: AgentSettings, spec: NodeProfileSpec) -> NodeProfileSpec:
    """The node with the labels and taints that its object had last, where it joins a cluster."""
    if settings.kubeconfig is None:
        return spec

    saved = saved_node_object(settings.root_dir)
    labels = {**spec.labels, **configured_labels(settings), **saved.labels}
    return replace(spec, labels=labels, taints=saved.taints)


def _profile_of_settings(settings: AgentSettings, document: dict[str, Any]) -> NodeProfile:
    """The described node, with the configuration of the command line if there is one."""
    profile = find_profile(settings.node)
    if settings.config is None and settings.config_dir is None:
        return profile
    return replace(profile, spec=replace(profile.spec, kubelet_configuration=document))


def node_system_info(
    started_ns: int, runtime: RuntimeFacts | None, release: str, address: str = ""
) -> NodeSystemInfo:
    """The system info of this machine, for an agent with the rules of this release; no runtime: a dry run.

    ``address``: the node's; empty: the machine's own.

    Units: started_ns in nanoseconds since 1970.
    """
    machine = os.uname()
    return NodeSystemInfo(
        kubelet_version=f"v{release}.0+nodewright-{__version__}",
        started_ns=started_ns,
        container_runtime_version=f"{runtime.name}://{runtime.version}" if runtime else "dry-run://0",
        kernel_version=machine.release,
        os_image=_os_image(),
        host_ip=address or host_address(),
    )


def node_address(settings: AgentSettings) -> str:
    """The node's first address: that of --node-ip, or the machine's; empty without either.

    Errors: InputError.
    """
    if not settings.node_ip:
        return host_address()

    return next(iter(node_addresses(settings)), "") or host_address()


def is_app_armor_enabled() -> bool:
    """Whether this machine's kernel enforces AppArmor profiles.

    Follows: v1.36, third_party/forked/libcontainer/apparmor/apparmor_linux.go, IsEnabled.
    """
    try:
        has_policies = Path("/sys/kernel/security/apparmor").exists()
        return has_policies and Path("/sys/module/apparmor/parameters/enabled").read_text().startswith("Y")
    except OSError:
        return False


def host_address() -> str:
    """The machine's address towards the network; empty without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # No packet is sent: the kernel only chooses the source address.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


WATCHED_SOURCES = frozenset({PodSource.FILE, PodSource.HTTP, PodSource.WORKLOAD})


def watch_sources(
    settings: AgentSettings, kubelet: KubeletConfiguration, listener: SourceListener
) -> Iterator[BackgroundTask]:
    """The watchers of all sources; a source that is not configured lists no pods at once."""
    directories = {
        PodSource.FILE: static_pod_path(settings, kubelet),
        PodSource.WORKLOAD: settings.workload_dir,
    }
    for source, directory in directories.items():
        if directory is None:
            listener.observe(SourcePodsListed(source, ()))
        else:
            period_s = kubelet.file_check_frequency.nanoseconds / 10**9
            run = partial(watch_directory, directory, source, listener, period_s)
            yield BackgroundTask(f"watch the manifests in {directory}", run)
    request = manifest_request(settings, kubelet)
    if request is not None:
        from nodewright.agent.observe.manifest_url import watch_url  # noqa: PLC0415 - needs the extra `agent`

        url, headers = request
        period_s = kubelet.http_check_frequency.nanoseconds / 10**9
        yield BackgroundTask(f"watch {url}", partial(watch_url, url, headers, listener, period_s))
    else:
        listener.observe(SourcePodsListed(PodSource.HTTP, ()))


# ---------------------------------------------------------------- the Node object


NODE_OBJECT = "node-object.json"
"""In the root directory: labels and taints of the Node object. An agent that starts while the API server is gone admits
its pods by them."""
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_OPEN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OPEN_LABELS = frozenset(
    [
        *("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os"),
        *("beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone"),
        *("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"),
        *("failure-domain.beta.kubernetes.io/region",),
    ]
)
_NO_LOCAL_ADDRESS = "must be an address of this machine, no loopback, link-local or multicast address"


class SavedNodeObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the Node object said last."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


def saved_node_object(root_dir: Path) -> SavedNodeObject:
    """What the last agent knew of the Node object; nothing where there is no such file, or none that can be read."""
    with suppress(OSError, *JSON_ERRORS):
        return decode(json.loads((root_dir / NODE_OBJECT).read_text("utf-8")), SavedNodeObject)
    return SavedNodeObject()


def configured_labels(settings: AgentSettings) -> dict[str, str]:
    """The labels of --node-labels.

    Follows: v1.36, cmd/kubelet/app/options/options.go, ValidateKubeletFlags; pkg/kubelet/apis/well_known_labels.go.
    Errors:  InputError.
    """
    labels, faults = dict[str, str](), []
    for text in _items(settings.node_labels):
        key, separator, value = text.partition("=")
        if not separator or not key:
            faults.append(Fault(source="--node-labels", value=text, rule="must be KEY=VALUE"))
        elif _is_reserved(key):
            domains = " and ".join(_OPEN_DOMAINS)
            rule = f"labels of kubernetes.io and k8s.io are reserved, except those of {domains} and the well-known ones"
            faults.append(Fault(source="--node-labels", value=key, rule=rule))
        else:
            faults += _label_faults("--node-labels", key, value)
        labels[key] = value
    if faults:
        raise InputError(faults)
    return labels


def _is_reserved(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return (
        key not in _OPEN_LABELS
        and any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS)
        and not any(domain == open_ or domain.endswith(f".{open_}") for open_ in _OPEN_DOMAINS)
    )


def configured_taints(settings: AgentSettings) -> tuple[Taint, ...]:
    """The taints of --register-with-taints.

    Follows: v1.36, pkg/util/taints/taints.go, parseTaint.
    Errors:  InputError.
    """
    taints, faults = [], []
    for text in _items(settings.register_with_taints):
        key_value, _, effect = text.rpartition(":")
        key, _, value = key_value.partition("=")
        if not key or effect not in TAINT_EFFECTS:
            rule = f"must be KEY=VALUE:EFFECT, with one of the effects {', '.join(TAINT_EFFECTS)}"
            faults.append(Fault(source="--register-with-taints", value=text, rule=rule))
        else:
            faults += _label_faults("--register-with-taints", key, value)
        taints.append(Taint(key=key, value=value, effect=effect))
    if faults:
        raise InputError(faults)
    return tuple(taints)


def node_addresses(settings: AgentSettings) -> tuple[str, ...]:
    """The addresses of --node-ip; none: the agent finds one.

    Follows: v1.36, kubelet/kubelet_node_status.go, validateNodeIP.
    Errors:  InputError.
    """
    addresses, faults = [], []
    for text in _items((settings.node_ip,)):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            faults.append(Fault(source="--node-ip", value=text, rule="must be an IP address"))
            continue
        if address.is_loopback or address.is_multicast or address.is_link_local:
            faults.append(Fault(source="--node-ip", value=text, rule=_NO_LOCAL_ADDRESS))
        elif not address.is_unspecified:
            addresses.append(str(address))
    if len(addresses) > 2:
        faults.append(
            Fault(
                source="--node-ip",
                value=settings.node_ip,
                rule="must be one address, or one each of IPv4 and IPv6",
            )
        )
    if faults:
        raise InputError(faults)
    return tuple(addresses)


def _label_faults(source: str, key: str, value: str) -> Iterator[Fault]:
    """What the API server refuses in the key or value of a label or taint."""
    for text, errors in ((key, label_key_errors(key)), (value, label_value_errors(value))):
        yield from (Fault(source=source, value=text, rule=rule) for rule in errors)


def _items(texts: Sequence[str]) -> list[str]:
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]
