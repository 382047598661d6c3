"""The settings of `nodewright agent`: its command-line options, named as the kubelet's."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.agent_client import DEFAULT_SOCKET, SOCKET_VARIABLE
from nodewright.cluster.client.http_get import HTTPRequest
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

if TYPE_CHECKING:
    from nodewright.cluster.client.access import ClusterAccess


DEFAULT_CGROUP_ROOT = "/nodewright"
_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the command line."""

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
    release: str | None
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


_OPTIONS = (
    click.option("--config", type=_FILE, metavar="FILE", help="A KubeletConfiguration."),
    click.option(
        "--config-dir", type=_DIRECTORY, metavar="DIR", help="Drop-ins (*.conf) merged into --config."
    ),
    click.option(
        "--pod-manifest-path",
        "manifests",
        type=click.Path(path_type=Path),
        metavar="DIR|FILE",
        help="Static pods; they are critical and may preempt other pods. Default: staticPodPath of --config.",
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
        help="Directory for the agent's state, volumes and logs.",
    ),
    click.option(
        "--device-plugin-dir",
        type=_DIRECTORY,
        metavar="DIR",
        help="Directory where device plugins register, on kubelet.sock. Default: device-plugins below --root-dir; "
        "the kubelet's is /var/lib/kubelet/device-plugins.",
    ),
    click.option(
        "--cgroup-root",
        metavar="PATH",
        help=f"Cgroup below which all others are created; no other cgroup is changed. Default: cgroupRoot of --config, or {DEFAULT_CGROUP_ROOT}.",
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
        "--kubeconfig",
        metavar="FILE",
        help="Join the cluster of this kubeconfig as a Node. Default: no cluster.",
    ),
    click.option(
        "--bootstrap-kubeconfig",
        metavar="FILE",
        help="With --kubeconfig: the credentials to request a client certificate with; that file is then written.",
    ),
    click.option(
        "--node-labels",
        multiple=True,
        metavar="KEY=VALUE,...",
        help="With --kubeconfig: labels of the Node. Repeatable.",
    ),
    click.option(
        "--register-with-taints",
        multiple=True,
        metavar="KEY=VALUE:EFFECT,...",
        help="With --kubeconfig: taints of a new Node. Repeatable. Default: registerWithTaints of --config.",
    ),
    click.option(
        "--register-node",
        type=click.BOOL,
        is_flag=False,
        flag_value="true",
        metavar="true|false",
        help="With --kubeconfig: whether to create the Node object. Default: registerNode of --config, or true.",
    ),
    click.option(
        "--node-ip",
        default="",
        metavar="ADDRESS[,ADDRESS]",
        help="With --kubeconfig: the Node's addresses. Default: the one towards the network.",
    ),
    click.option(
        "--provider-id",
        default="",
        metavar="ID",
        help="With --kubeconfig: the machine's id at its cloud. Default: providerID of --config.",
    ),
    click.option(
        "--cloud-provider",
        type=click.Choice(("", "external")),
        default="",
        metavar="external",
        help="With --kubeconfig: a cloud controller initializes the Node.",
    ),
    click.option(
        "--feature-gates",
        multiple=True,
        metavar="GATE=true|false,...",
        help="Feature gates in addition to those of --config. Repeatable.",
    ),
    click.option(
        "--release",
        metavar="R",
        help="The Kubernetes release whose rules the agent follows, e.g. 1.33. Default: that of --node, else the newest.",
    ),
    click.option(
        "--kubelet-defects",
        type=click.Choice(("avoid", "follow")),
        default="avoid",
        show_default=True,
        help="Whether to follow or avoid known defects of the kubelet.",
    ),
    click.option(
        "--eviction-policy",
        type=click.Choice(("adaptive", "kubelet")),
        default="adaptive",
        show_default=True,
        help="How often to check for pressure: by distance and growth, or as the kubelet does.",
    ),
    click.option(
        "--socket",
        envvar=SOCKET_VARIABLE,
        default=DEFAULT_SOCKET,
        show_default=True,
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Path of the API socket for `nodewright run`, `get` and the others; accessible to root only.",
    ),
    click.option("--socket-group", default="", metavar="NAME", help="Group that may also use the socket."),
    click.option(
        "--kubelet-api",
        is_flag=True,
        help="Serve the kubelet's HTTPS API, as configured in --config: address, port, TLS, authentication.",
    ),
    click.option(
        "--token-auth-file",
        type=_FILE,
        metavar="FILE",
        help='Bearer tokens of users: lines of token,user,uid[,"group,..."[,EXPIRY]].',
    ),
    click.option(
        "--grant",
        "grants",
        multiple=True,
        metavar="ROLE=KIND:NAME",
        help="Authorize for the kubelet API: read or write, for user:NAME or group:NAME. Repeatable. Default: no access.",
    ),
    click.option(
        "--pod-resources-socket",
        type=click.Path(path_type=Path),
        metavar="PATH|none",
        help="Path of the PodResources v1 socket. Default: pod-resources/kubelet.sock in --root-dir.",
    ),
    click.option(
        "--drain-on-exit",
        is_flag=True,
        help="Terminate all pods on SIGTERM, by priority. Default: pods keep running, and the next agent adopts them.",
    ),
    click.option(
        "--dry-run",
        type=click.Choice(("once", "serve")),
        is_flag=False,
        flag_value="once",
        help="Carry out nothing, print every action: once for the existing pods, or as an agent that serves its API.",
    ),
    click.option(
        "--node",
        metavar="FILE|NAME",
        help="With --dry-run: another node, a NodeProfile or a machine of `node catalogue`. Default: this machine.",
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
