"""The settings of `nodewright agent`: its command-line options, named as the kubelet's."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.agent_client import DEFAULT_SOCKET, SOCKET_VARIABLE
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

if TYPE_CHECKING:
    from nodewright.cluster.client.access import ClusterAccess


T = TypeVar("T", bound=Callable[..., Any])

DEFAULT_CGROUP_ROOT = "/nodewright"
_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the command line."""

    config: Path | None = None
    config_dir: Path | None = None
    manifests: Path | None = None
    manifest_url: str | None = None
    manifest_url_headers: tuple[str, ...] = ()
    workload_dir: Path | None = None
    root_dir: Path
    device_plugin_dir: Path | None = None
    cgroup_root: str | None = None
    endpoint: str | None = None
    node_name: str | None = None
    feature_gates: tuple[str, ...] = ()
    release: str | None = None
    kubelet_defects: str = "avoid"
    eviction_policy: str = "adaptive"
    lend: str = ""
    socket: Path
    socket_group: str = ""
    kubelet_api: bool = False
    token_auth_file: Path | None = None
    grants: tuple[str, ...] = ()
    pod_resources_socket: Path | None = None
    drain_on_exit: bool = False
    dry_run: str | None = None
    node: str | None = None
    kubeconfig: str | None = None
    node_labels: tuple[str, ...] = ()
    register_with_taints: tuple[str, ...] = ()
    register_node: bool | None = None
    node_ip: str = ""
    provider_id: str = ""
    cloud_provider: str = ""
    cert_dir: Path | None = None
    bootstrap_kubeconfig: str | None = None
    is_kubelet: bool = False
    """Whether the command line is the kubelet's: the runtime and the directory of logs are those of the configuration."""
    config_overrides: tuple[tuple[str, Any], ...] = ()
    """Fields of the configuration by their path, with the values of flags."""

    @property
    def certificate_dir(self) -> Path:
        """The directory of the node's certificates."""
        return self.cert_dir or self.root_dir / "pki"


def _option(names: str, metavar: str | None, about: str, **settings: Any) -> Callable[[T], T]:
    """An option with these names, of which the last may be that of the setting."""
    return click.option(*names.split(), metavar=metavar, help=about, **settings)


_OPTIONS = (
    _option("--config", "FILE", "A KubeletConfiguration.", type=_FILE),
    _option("--config-dir", "DIR", "Drop-ins (*.conf) merged into --config.", type=_DIRECTORY),
    _option(
        "--pod-manifest-path manifests",
        "DIR|FILE",
        "Static pods; they are critical and may preempt other pods. Default: staticPodPath of --config.",
        type=click.Path(path_type=Path),
    ),
    _option("--manifest-url", "URL", "More static pods. Default: staticPodURL of --config."),
    _option(
        "--manifest-url-header manifest_url_headers",
        "NAME:VALUE",
        "A header of that request. Repeatable.",
        multiple=True,
    ),
    _option("--workload-dir", "DIR", "Manifests of ordinary pods.", type=_DIRECTORY),
    _option(
        "--root-dir",
        "DIR",
        "Directory for the agent's state, volumes and logs.",
        type=_DIRECTORY,
        default=Path("/var/lib/nodewright"),
        show_default=True,
    ),
    _option(
        "--device-plugin-dir",
        "DIR",
        "Directory where device plugins register, on kubelet.sock. Default: device-plugins below --root-dir; "
        "the kubelet's is /var/lib/kubelet/device-plugins.",
        type=_DIRECTORY,
    ),
    _option(
        "--cgroup-root",
        "PATH",
        f"Cgroup below which all others are created; no other cgroup is changed. Default: cgroupRoot of --config, or {DEFAULT_CGROUP_ROOT}.",
    ),
    _option(
        "--container-runtime-endpoint endpoint",
        "unix:///PATH",
        "A CRI runtime, e.g. containerd's. Default: plain processes of this machine.",
    ),
    _option("--hostname-override --node-name node_name", "NAME", "The node's name. Default: the host's."),
    _option("--kubeconfig", "FILE", "Join the cluster of this kubeconfig as a Node. Default: no cluster."),
    _option(
        "--bootstrap-kubeconfig",
        "FILE",
        "With --kubeconfig: the credentials to request a client certificate with; that file is then written.",
    ),
    _option(
        "--node-labels", "KEY=VALUE,...", "With --kubeconfig: labels of the Node. Repeatable.", multiple=True
    ),
    _option(
        "--register-with-taints",
        "KEY=VALUE:EFFECT,...",
        "With --kubeconfig: taints of a new Node. Repeatable. Default: registerWithTaints of --config.",
        multiple=True,
    ),
    _option(
        "--register-node",
        "true|false",
        "With --kubeconfig: whether to create the Node object. Default: registerNode of --config, or true.",
        type=click.BOOL,
        is_flag=False,
        flag_value="true",
    ),
    _option(
        "--node-ip",
        "ADDRESS[,ADDRESS]",
        "With --kubeconfig: the Node's addresses. Default: the one towards the network.",
        default="",
    ),
    _option(
        "--provider-id",
        "ID",
        "With --kubeconfig: the machine's id at its cloud. Default: providerID of --config.",
        default="",
    ),
    _option(
        "--cloud-provider",
        "external",
        "With --kubeconfig: a cloud controller initializes the Node.",
        type=click.Choice(("", "external")),
        default="",
    ),
    _option(
        "--feature-gates",
        "GATE=true|false,...",
        "Feature gates in addition to those of --config. Repeatable.",
        multiple=True,
    ),
    _option(
        "--release",
        "R",
        "The Kubernetes release whose rules the agent follows, e.g. 1.33. Default: that of --node, else the newest.",
    ),
    _option(
        "--kubelet-defects",
        None,
        "Whether to follow or avoid known defects of the kubelet.",
        type=click.Choice(("avoid", "follow")),
        default="avoid",
        show_default=True,
    ),
    _option(
        "--eviction-policy",
        None,
        "How often to check for pressure: by distance and growth, or as the kubelet does.",
        type=click.Choice(("adaptive", "kubelet")),
        default="adaptive",
        show_default=True,
    ),
    _option(
        "--lend",
        "PREDICTOR[:PERCENT]",
        "Lend to BestEffort pods what other pods request and do not use, as far as a predictor of `nodewright lend` allows, "
        "e.g. borg-decay, or with another margin borg-decay:20. Default: nothing.",
        default="",
    ),
    _option(
        "--socket",
        "PATH",
        "Path of the API socket for `nodewright run`, `get` and the others; accessible to root only.",
        envvar=SOCKET_VARIABLE,
        default=DEFAULT_SOCKET,
        show_default=True,
        type=click.Path(path_type=Path),
    ),
    _option("--socket-group", "NAME", "Group that may also use the socket.", default=""),
    _option(
        "--kubelet-api",
        None,
        "Serve the kubelet's HTTPS API, as configured in --config: address, port, TLS, authentication.",
        is_flag=True,
    ),
    _option(
        "--token-auth-file",
        "FILE",
        'Bearer tokens of users: lines of token,user,uid[,"group,..."[,EXPIRY]].',
        type=_FILE,
    ),
    _option(
        "--grant grants",
        "ROLE=KIND:NAME",
        "Authorize for the kubelet API: read or write, for user:NAME or group:NAME. Repeatable. Default: no access.",
        multiple=True,
    ),
    _option(
        "--pod-resources-socket",
        "PATH|none",
        "Path of the PodResources v1 socket. Default: pod-resources/kubelet.sock in --root-dir.",
        type=click.Path(path_type=Path),
    ),
    _option(
        "--drain-on-exit",
        None,
        "Terminate all pods on SIGTERM, by priority. Default: pods keep running, and the next agent adopts them.",
        is_flag=True,
    ),
    _option(
        "--dry-run",
        None,
        "Carry out nothing, print every action: once for the existing pods, or as an agent that serves its API.",
        type=click.Choice(("once", "serve")),
        is_flag=False,
        flag_value="once",
    ),
    _option(
        "--node",
        "FILE|NAME",
        "With --dry-run: another node, a NodeProfile or a machine of `node catalogue`. Default: this machine.",
    ),
)


def agent_options(command: Callable[[AgentSettings], int]) -> Callable[..., int]:
    """All options of the agent; the command gets them as one `AgentSettings`."""

    @wraps(command)
    def invoke(**options: Any) -> int:
        settings = AgentSettings(**options)
        # Shims and runtimes run in other directories and get paths below the root directory.
        return command(replace(settings, root_dir=settings.root_dir.absolute()))

    with_options: Callable[..., int] = invoke
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def cgroup_root(settings: AgentSettings, document: dict[str, Any]) -> str:
    """The cgroup below which all others are created.

    Only a configuration makes it the machine's root, as a kubelet's default is: the agent then changes the cgroup of all
    pods, `kubepods`, and those below it.

    Errors: InputError.
    """
    root = settings.cgroup_root or document.get("cgroupRoot") or DEFAULT_CGROUP_ROOT
    if root == "/" and settings.cgroup_root is None and document.get("cgroupsPerQOS") is not False:
        return root
    if not isinstance(root, str) or not root.strip("/") or ".." in root.split("/"):
        rule = f"must be a cgroup below the root, such as {DEFAULT_CGROUP_ROOT}: the agent changes no other cgroup"
        raise InputError([Fault(source="--cgroup-root", value=root, rule=rule)])
    return "/" + root.strip("/")


def pod_resources_socket(settings: AgentSettings) -> Path | None:
    """The path of the PodResources socket; None: it is not served."""
    path = settings.pod_resources_socket
    if path is None:
        return settings.root_dir / "pod-resources" / "kubelet.sock"
    return None if str(path) == "none" else path


def static_pod_path(settings: AgentSettings, config: KubeletConfiguration) -> Path | None:
    """The directory or file of static pods; None: there is none."""
    configured = Path(config.static_pod_path) if config.static_pod_path else None
    return settings.manifests or configured


def manifest_request(
    settings: AgentSettings, config: KubeletConfiguration
) -> tuple[str, dict[str, str]] | None:
    """The URL of static pods with the headers of its requests; None: there is none.

    Errors: InputError.
    """
    url = settings.manifest_url or config.static_pod_url
    if not url:
        return None
    from nodewright.cluster.client.http_get import HTTPRequest  # noqa: PLC0415 - needs the extra

    headers = _manifest_url_headers(settings, config)
    try:
        HTTPRequest.from_url(url, headers)
    except ValueError as error:
        source = "--manifest-url" if settings.manifest_url else "staticPodURL"
        raise InputError([Fault(source=source, value=url, rule=str(error))]) from None
    return url, headers


def _manifest_url_headers(settings: AgentSettings, config: KubeletConfiguration) -> dict[str, str]:
    values = {name: ", ".join(values) for name, values in config.static_pod_url_header.items()}
    faults = []
    for text in settings.manifest_url_headers:
        name, separator, value = text.partition(":")
        if not separator or not name.strip():
            faults.append(Fault(source="--manifest-url-header", value=text, rule="must be NAME:VALUE"))
        values[name.strip()] = value.strip()
    if faults:
        raise InputError(faults)
    return values


def feature_gates(settings: AgentSettings) -> dict[str, bool]:
    """The feature gates of the command line.

    Errors: InputError.
    """
    values, faults = dict[str, bool](), []
    for text in (gate for gates_text in settings.feature_gates for gate in gates_text.split(",") if gate):
        name, _, value = text.partition("=")
        if value.lower() not in ("true", "false"):
            faults.append(Fault(source="--feature-gates", value=text, rule="must be NAME=true or NAME=false"))
        values[name.strip()] = value.lower() == "true"
    if faults:
        raise InputError(faults)
    return values


class NodeCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent reaches its cluster, and whether its certificate is issued by the cluster."""

    access: "ClusterAccess"
    is_issued: bool = False
    """Whether the client certificate is that of the store, and is requested."""
    is_renewed: bool = False
    is_forced: bool = False
    """Whether the certificate is replaced at once, because it came with the kubeconfig."""
    bootstrap_kubeconfig: str = ""
    """The credentials for requests without a valid certificate; empty: those of ``access``."""
