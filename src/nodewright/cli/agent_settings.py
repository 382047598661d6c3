"""What `nodewright agent` is told on its command line, with options named as the kubelet's."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from nodewright.api.client import DEFAULT_SOCKET
from nodewright.ask import Node
from nodewright.cli.talking import SOCKET_VARIABLE
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.world.errors import Fault, InputError
from nodewright.world.kubelet_config import config_document
from nodewright.world.machine.capture import capture_here
from nodewright.world.machine.files import this_machine
from nodewright.world.machine.host import cgroup_version

OWN_CGROUP = "/nodewright"
_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says."""

    config: Path | None
    config_dir: Path | None
    manifests: Path | None
    manifest_url: str | None
    manifest_url_headers: tuple[str, ...]
    workload_dir: Path | None
    root_dir: Path
    cgroup_root: str | None
    endpoint: str | None
    node_name: str | None
    feature_gates: tuple[str, ...]
    kubelet_defects: str
    eviction_policy: str
    socket: Path
    socket_group: str
    drain_on_exit: bool
    dry_run: str | None


_OPTIONS = (
    click.option("--config", type=_FILE, metavar="FILE", help="A KubeletConfiguration."),
    click.option(
        "--config-dir", type=_DIRECTORY, metavar="DIR", help="Drop-ins (*.conf) that are merged into it."
    ),
    click.option(
        "--pod-manifest-path",
        "manifests",
        type=click.Path(path_type=Path),
        metavar="DIR|FILE",
        help="Static pods: they are critical and push others out. Default: staticPodPath of --config.",
    ),
    click.option(
        "--manifest-url", metavar="URL", help="More static pods. Default: staticPodURL of --config."
    ),
    click.option(
        "--manifest-url-header",
        "manifest_url_headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="A header of that request. Repeatable.",
    ),
    click.option("--workload-dir", type=_DIRECTORY, metavar="DIR", help="Manifests of ordinary pods."),
    click.option(
        "--root-dir",
        type=_DIRECTORY,
        default=Path("/var/lib/nodewright"),
        show_default=True,
        metavar="DIR",
        help="Where the agent keeps what has to outlive it, and logs.",
    ),
    click.option(
        "--cgroup-root",
        metavar="PATH",
        help=f"Below it all groups are made; nothing else is touched. Default: cgroupRoot of --config, or {OWN_CGROUP}.",
    ),
    click.option(
        "--container-runtime-endpoint",
        "endpoint",
        metavar="unix:///PATH",
        help="A CRI runtime, e.g. containerd's. Default: plain processes of this machine.",
    ),
    click.option(
        "--hostname-override",
        "--node-name",
        "node_name",
        metavar="NAME",
        help="The node's name. Default: the host's.",
    ),
    click.option(
        "--feature-gates",
        multiple=True,
        metavar="GATE=true|false,...",
        help="Gates beside those of --config. Repeatable.",
    ),
    click.option(
        "--kubelet-defects",
        type=click.Choice(("avoid", "follow")),
        default="avoid",
        show_default=True,
        help="What the kubelet is known to do wrong.",
    ),
    click.option(
        "--eviction-policy",
        type=click.Choice(("adaptive", "kubelet")),
        default="adaptive",
        show_default=True,
        help="How often to look for pressure: by distance and growth, or as the kubelet.",
    ),
    click.option(
        "--socket",
        envvar=SOCKET_VARIABLE,
        default=DEFAULT_SOCKET,
        show_default=True,
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Where to listen for `nodewright run`, `get` and the others; only root may ask.",
    ),
    click.option("--socket-group", default="", metavar="NAME", help="A group that may ask, too."),
    click.option(
        "--drain-on-exit",
        is_flag=True,
        help="End all pods on SIGTERM, by priority. Default: they go on, and the next agent takes them over.",
    ),
    click.option(
        "--dry-run",
        type=click.Choice(("once", "serve")),
        is_flag=False,
        flag_value="once",
        help="Do nothing, show every action: once for the pods that there are, or as an agent to talk to.",
    ),
)


def settings(command: Callable[[Settings], int]) -> Callable[..., int]:
    """All options of the agent; the command gets them as one `Settings`."""

    @wraps(command)
    def asking(**given: Any) -> int:
        return command(Settings(**{field.name: given[field.name] for field in fields(Settings)}))

    with_options: Callable[..., int] = asking
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def opened(told: Settings) -> Node:
    """The machine that we run on as a node that has no pods.

    Errors: InputError with all that is wrong with the configuration; WorldError if the machine cannot be read.
    """
    document = config_document(told.config, config_dir=told.config_dir)
    if cgroup_version(this_machine()) == 1:
        # A kubelet has to be told so; who starts this agent on such a machine means it.
        document.setdefault("failCgroupV1", False)
    document["cgroupRoot"] = cgroup_root(told, document)
    document["featureGates"] = {**(document.get("featureGates") or {}), **_gates(told.feature_gates)}
    profile = capture_here(document).profile
    spec = replace(profile.spec, kubelet_defects=told.kubelet_defects)
    metadata = replace(profile.metadata, name=told.node_name or profile.metadata.name)
    labels = {**spec.labels, "kubernetes.io/hostname": metadata.name}
    profile = replace(profile, metadata=metadata, spec=replace(spec, labels=labels))
    return Node.of(profile, source=str(told.config or "this machine"))


def cgroup_root(told: Settings, document: dict[str, Any]) -> str:
    """The group below which all others are made: never that of the machine.

    Errors: InputError.
    """
    root = told.cgroup_root or document.get("cgroupRoot") or OWN_CGROUP
    if not isinstance(root, str) or not root.strip("/") or ".." in root.split("/"):
        rule = f"a group of its own is wanted, such as {OWN_CGROUP}: the agent touches nothing else"
        raise InputError([Fault(source="--cgroup-root", value=root, rule=rule)])
    return "/" + root.strip("/")


def static_path(told: Settings, config: KubeletConfiguration) -> Path | None:
    """Where static pods are; None: nowhere."""
    configured = Path(config.static_pod_path) if config.static_pod_path else None
    return told.manifests or configured


def _gates(texts: tuple[str, ...]) -> dict[str, bool]:
    """Feature gates as the kubelet's flag has them.

    Errors: InputError.
    """
    found, faults = dict[str, bool](), []
    for text in (one for each in texts for one in each.split(",") if one):
        name, _, value = text.partition("=")
        if value.lower() not in ("true", "false"):
            faults.append(
                Fault(source="--feature-gates", value=text, rule="NAME=true or NAME=false is wanted")
            )
        found[name.strip()] = value.lower() == "true"
    if faults:
        raise InputError(faults)
    return found
