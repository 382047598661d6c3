"""The options of `nodewright export`, and what they amount to."""

import platform
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from nodewright.cluster.client.tls import PeerAccess
from nodewright.documents.profiles.kubelet_root import DEFAULT_ROOT_DIRECTORY, POD_RESOURCES_SOCKET
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.scheduling.exporter.exporter import MIN_POLL_PERIOD_S, POLL_PERIOD_S
from nodewright.scheduling.exporter.kubelet_client import KubeletEndpoint
from nodewright.scheduling.exporter.node_reader import ExportSettings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_PATH = click.Path(path_type=Path)
DEFAULT_PORT = 9453


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    node_name: str
    kubelet_root: Path
    kubelet_config: Path | None
    config_dir: Path | None
    machine: Path | None
    pod_resources: str
    kubernetes_version: str
    kubelet_url: str
    kubelet_token_file: Path | None
    kubelet_certificate_authority: Path | None
    kubelet_client_certificate: Path | None
    kubelet_client_key: Path | None
    poll_period: float
    kubeconfig: str | None
    in_cluster: bool
    publish: tuple[str, ...]
    advertise: str
    listen: str
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    cert_dir: Path | None
    client_ca_file: Path | None
    token_auth_file: Path | None
    grants: tuple[str, ...]
    health_port: int
    once: bool

    def settings(self) -> ExportSettings:
        """The sources of the export.

        Errors: InputError.
        """
        name = self.node_name or platform.node().strip().lower()
        if rules := dns1123_subdomain_errors(name):
            raise InputError([Fault(source="--node-name", value=name, rule=rules[0])])
        socket = None
        if self.pod_resources != "none":
            socket = Path(self.pod_resources or self.kubelet_root / POD_RESOURCES_SOCKET)
        return ExportSettings(
            node_name=name,
            kubelet_root=self.kubelet_root,
            kubelet_config=self.kubelet_config,
            config_dir=self.config_dir,
            machine=self.machine,
            pod_resources=socket,
            kubernetes_version=self.kubernetes_version,
        )

    def endpoint(self) -> KubeletEndpoint | None:
        """The kubelet's API; None: it is not read."""
        if not self.kubelet_url:
            return None
        peer = PeerAccess(
            token_file=self.kubelet_token_file,
            authority=self.kubelet_certificate_authority,
            certificate=self.kubelet_client_certificate,
            key=self.kubelet_client_key,
        )
        return KubeletEndpoint(url=self.kubelet_url, peer=peer)

    @property
    def joins_cluster(self) -> bool:
        """Whether an API server is followed."""
        return self.in_cluster or self.kubeconfig is not None


_OPTIONS = (
    click.option(
        "--node-name",
        envvar="NODE_NAME",
        default="",
        metavar="NAME",
        help="The node's name. Default: the host's.",
    ),
    click.option(
        "--kubelet-root",
        type=_DIRECTORY,
        default=DEFAULT_ROOT_DIRECTORY,
        show_default=True,
        metavar="DIR",
        help="The kubelet's directory (--root-dir), with its state files.",
    ),
    click.option(
        "--kubelet-config",
        type=_FILE,
        metavar="FILE",
        help="The kubelet's configuration (--config). Default: config.yaml in --kubelet-root, else its /configz.",
    ),
    click.option(
        "--config-dir", type=_DIRECTORY, metavar="DIR", help="Its drop-in directory (--config-dir)."
    ),
    click.option(
        "--machine",
        type=_DIRECTORY,
        metavar="DIR",
        help="Where the host's /sys and /proc are mounted. Default: /.",
    ),
    click.option(
        "--pod-resources",
        default="",
        metavar="SOCKET|none",
        help="The PodResources socket. Default: pod-resources/kubelet.sock in --kubelet-root.",
    ),
    click.option(
        "--kubernetes-version",
        default="",
        metavar="V",
        help="The kubelet's release. Default: as the Node object or the kubelet reports it.",
    ),
    click.option(
        "--kubelet-url",
        default="",
        metavar="URL",
        help="The kubelet's API, e.g. https://127.0.0.1:10250: pods, configuration and release.",
    ),
    click.option("--kubelet-token-file", type=_PATH, metavar="FILE", help="Bearer token for --kubelet-url."),
    click.option(
        "--kubelet-certificate-authority",
        type=_FILE,
        metavar="FILE",
        help="Authorities of the kubelet's certificate. Default: it is not verified.",
    ),
    click.option(
        "--kubelet-client-certificate", type=_FILE, metavar="FILE", help="Certificate for --kubelet-url."
    ),
    click.option("--kubelet-client-key", type=_FILE, metavar="FILE", help="Key of that certificate."),
    click.option(
        "--poll-period",
        type=click.FloatRange(min=MIN_POLL_PERIOD_S),
        default=POLL_PERIOD_S,
        show_default=True,
        metavar="SECONDS",
        help="How often to read what cannot be watched: the kubelet's pods.",
    ),
    click.option(
        "--kubeconfig", metavar="FILE", help="Follow the node's pods and its Node object in this cluster."
    ),
    click.option("--in-cluster", is_flag=True, help="As --kubeconfig, with the service account of this pod."),
    click.option(
        "--publish",
        multiple=True,
        type=click.Choice(("topology", "annotation")),
        help="Write a NodeResourceTopology, or the digest in annotations of the Node. Repeatable.",
    ),
    click.option(
        "--advertise",
        default="",
        metavar="URL",
        help="With --publish annotation: where readers reach this exporter, as a further annotation.",
    ),
    click.option(
        "--listen",
        default=f"0.0.0.0:{DEFAULT_PORT}",
        show_default=True,
        metavar="ADDRESS:PORT",
        help="Where the export is served over TLS.",
    ),
    click.option(
        "--tls-cert-file", type=_FILE, metavar="FILE", help="Certificate. Default: a self-signed one."
    ),
    click.option("--tls-private-key-file", type=_FILE, metavar="FILE", help="Key of the certificate."),
    click.option("--cert-dir", type=_PATH, metavar="DIR", help="Where the self-signed certificate is kept."),
    click.option(
        "--client-ca-file", type=_FILE, metavar="FILE", help="Authorities of clients' certificates."
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
        metavar="read=KIND:NAME",
        help="Authorize user:NAME or group:NAME. Repeatable. Default: no access.",
    ),
    click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        default=0,
        metavar="PORT",
        help="Serve /healthz and /readyz without TLS and authentication. Default: not.",
    ),
    click.option("--once", is_flag=True, help="Print the export and exit."),
)


def export_options(command: Callable[[ExportOptions], int]) -> Callable[..., int]:
    """All options of the exporter; the command gets them as one `ExportOptions`."""

    @wraps(command)
    def invoke(**parameters: Any) -> int:
        options = ExportOptions(**parameters)
        if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
            raise click.UsageError("--tls-cert-file and --tls-private-key-file go together")
        if bool(options.kubelet_client_certificate) != bool(options.kubelet_client_key):
            raise click.UsageError("--kubelet-client-certificate and --kubelet-client-key go together")
        if options.publish and not options.joins_cluster:
            raise click.UsageError("--publish requires --kubeconfig or --in-cluster")
        return command(options)

    with_options: Callable[..., int] = invoke
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
