"""What `nodewright agent` is told on its command line, with options named as the kubelet's."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nodewright.api.client import DEFAULT_SOCKET
from nodewright.cli.talking import SOCKET_VARIABLE
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.world.errors import Fault, InputError

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
    device_plugin_dir: Path | None
    cgroup_root: str | None
    endpoint: str | None
    node_name: str | None
    feature_gates: tuple[str, ...]
    kubelet_defects: str
    eviction_policy: str
    socket: Path
    socket_group: str
    kubelet_api: bool
    token_auth_file: Path | None
    grants: tuple[str, ...]
    pod_resources_socket: Path | None
    drain_on_exit: bool
    dry_run: str | None
    node: str | None


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
        "--device-plugin-dir",
        type=_DIRECTORY,
        metavar="DIR",
        help="Where device plugins register, on kubelet.sock. Default: device-plugins below --root-dir; "
        "theirs is /var/lib/kubelet/device-plugins.",
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
        "--kubelet-api",
        is_flag=True,
        help="Answer over HTTPS as a kubelet does, as --config says: address, port, TLS, authentication.",
    ),
    click.option(
        "--token-auth-file",
        type=_FILE,
        metavar="FILE",
        help='Who may ask by bearer token: lines of token,user,uid[,"group,..."[,EXPIRY]].',
    ),
    click.option(
        "--grant",
        "grants",
        multiple=True,
        metavar="ROLE=KIND:NAME",
        help="Who may do what there: read or write, for user:NAME or group:NAME. Repeatable. Default: nobody.",
    ),
    click.option(
        "--pod-resources-socket",
        type=click.Path(path_type=Path),
        metavar="PATH|none",
        help="Where who has what is told, as by a kubelet (PodResources v1). Default: pod-resources/kubelet.sock in "
        "--root-dir.",
    ),
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
    click.option(
        "--node",
        metavar="FILE|NAME",
        help="With --dry-run: another node, a NodeProfile or a shape of `node catalogue`. Default: this machine.",
    ),
)


def settings(command: Callable[[Settings], int]) -> Callable[..., int]:
    """All options of the agent; the command gets them as one `Settings`."""

    @wraps(command)
    def asking(**given: Any) -> int:
        told = Settings(**{field.name: given[field.name] for field in fields(Settings)})
        # Shims and runtimes, which stand elsewhere, get paths below it.
        return command(replace(told, root_dir=told.root_dir.absolute()))

    with_options: Callable[..., int] = asking
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def cgroup_root(told: Settings, document: dict[str, Any]) -> str:
    """The group below which all others are made: never that of the machine.

    Errors: InputError.
    """
    root = told.cgroup_root or document.get("cgroupRoot") or OWN_CGROUP
    if not isinstance(root, str) or not root.strip("/") or ".." in root.split("/"):
        rule = f"a group of its own is wanted, such as {OWN_CGROUP}: the agent touches nothing else"
        raise InputError([Fault(source="--cgroup-root", value=root, rule=rule)])
    return "/" + root.strip("/")


def pod_resources_socket(told: Settings) -> Path | None:
    """Where PodResources is served; None: nowhere."""
    named = told.pod_resources_socket
    if named is None:
        return told.root_dir / "pod-resources" / "kubelet.sock"
    return None if str(named) == "none" else named


def static_path(told: Settings, config: KubeletConfiguration) -> Path | None:
    """Where static pods are; None: nowhere."""
    configured = Path(config.static_pod_path) if config.static_pod_path else None
    return told.manifests or configured


def manifest_headers(told: Settings, config: KubeletConfiguration) -> dict[str, str]:
    """The headers of the request for static pods.

    Errors: InputError.
    """
    found = {name: ", ".join(values) for name, values in config.static_pod_url_header.items()}
    faults = []
    for text in told.manifest_url_headers:
        name, separator, value = text.partition(":")
        if not separator or not name.strip():
            faults.append(Fault(source="--manifest-url-header", value=text, rule="NAME:VALUE is wanted"))
        found[name.strip()] = value.strip()
    if faults:
        raise InputError(faults)
    return found


def feature_gates(told: Settings) -> dict[str, bool]:
    """Feature gates as the kubelet's flag has them.

    Errors: InputError.
    """
    found, faults = dict[str, bool](), []
    for text in (one for each in told.feature_gates for one in each.split(",") if one):
        name, _, value = text.partition("=")
        if value.lower() not in ("true", "false"):
            faults.append(
                Fault(source="--feature-gates", value=text, rule="NAME=true or NAME=false is wanted")
            )
        found[name.strip()] = value.lower() == "true"
    if faults:
        raise InputError(faults)
    return found
