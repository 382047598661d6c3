"""The options of `nodewright export`, and what they amount to."""

import platform
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from nodewright.cluster.client.tls import PeerAccess
from nodewright.documents.output.command_line import FiniteRange, IntegerRange, as_struct, option
from nodewright.documents.profiles.kubelet_root import (
    DEFAULT_ROOT_DIRECTORY,
    POD_RESOURCES_SOCKET,
)
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.scheduling.exporter.node_reader import ExportSettings

if TYPE_CHECKING:
    from nodewright.scheduling.exporter.kubelet_client import KubeletEndpoint

MIN_POLL_PERIOD_S = 5.0


POLL_PERIOD_S = 10.0
"""How often sources are read that cannot be watched."""


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

    def endpoint(self) -> "KubeletEndpoint | None":
        """The kubelet's API; None: it is not read."""
        if not self.kubelet_url:
            return None
        peer = PeerAccess(
            token_file=self.kubelet_token_file,
            authority=self.kubelet_certificate_authority,
            certificate=self.kubelet_client_certificate,
            key=self.kubelet_client_key,
        )
        from nodewright.scheduling.exporter.kubelet_client import KubeletEndpoint  # noqa: PLC0415 - needs the extra

        return KubeletEndpoint(url=self.kubelet_url, peer=peer)

    @property
    def joins_cluster(self) -> bool:
        """Whether an API server is followed."""
        return self.in_cluster or self.kubeconfig is not None


_OPTIONS = (
    option("--node-name NAME", "The node's name. Default: the host's.", envvar="NODE_NAME", default=""),
    option(
        "--kubelet-root DIR",
        "The kubelet's directory (--root-dir), with its state files.",
        type=_DIRECTORY,
        default=DEFAULT_ROOT_DIRECTORY,
    ),
    option(
        "--kubelet-config FILE",
        "The kubelet's configuration (--config). Default: config.yaml in --kubelet-root, else its /configz.",
        type=_FILE,
    ),
    option("--config-dir DIR", "Its drop-in directory (--config-dir).", type=_DIRECTORY),
    option("--machine DIR", "Where the host's /sys and /proc are mounted. Default: /.", type=_DIRECTORY),
    option(
        "--pod-resources SOCKET|none",
        "The PodResources socket. Default: pod-resources/kubelet.sock in --kubelet-root.",
        default="",
    ),
    option(
        "--kubernetes-version V",
        "The kubelet's release. Default: as the Node object or the kubelet reports it.",
        default="",
    ),
    option(
        "--kubelet-url URL",
        "The kubelet's API, e.g. https://127.0.0.1:10250: pods, configuration and release.",
        default="",
    ),
    option("--kubelet-token-file FILE", "Bearer token for --kubelet-url.", type=_PATH),
    option(
        "--kubelet-certificate-authority FILE",
        "Authorities of the kubelet's certificate. Default: it is not verified.",
        type=_FILE,
    ),
    option("--kubelet-client-certificate FILE", "Certificate for --kubelet-url.", type=_FILE),
    option("--kubelet-client-key FILE", "Key of that certificate.", type=_FILE),
    option(
        "--poll-period SECONDS",
        "How often to read what cannot be watched: the kubelet's pods.",
        type=FiniteRange(MIN_POLL_PERIOD_S, 86_400.0),
        default=POLL_PERIOD_S,
    ),
    option("--kubeconfig FILE", "Follow the node's pods and its Node object in this cluster."),
    option("--in-cluster", "As --kubeconfig, with the service account of this pod."),
    option(
        "--publish",
        "Write a NodeResourceTopology, or the digest in annotations of the Node. Repeatable.",
        multiple=True,
        type=click.Choice(("topology", "annotation")),
    ),
    option(
        "--advertise URL",
        "With --publish annotation: where readers reach this exporter, as a further annotation.",
        default="",
    ),
    option(
        "--listen ADDRESS:PORT", "Where the export is served over TLS.", default=f"0.0.0.0:{DEFAULT_PORT}"
    ),
    option("--tls-cert-file FILE", "Certificate. Default: a self-signed one.", type=_FILE),
    option("--tls-private-key-file FILE", "Key of the certificate.", type=_FILE),
    option("--cert-dir DIR", "Where the self-signed certificate is kept.", type=_PATH),
    option("--client-ca-file FILE", "Authorities of clients' certificates.", type=_FILE),
    option(
        "--token-auth-file FILE",
        'Bearer tokens of users: lines of token,user,uid[,"group,..."[,EXPIRY]].',
        type=_FILE,
    ),
    option(
        "--grant read=KIND:NAME",
        "Authorize user:NAME or group:NAME. Repeatable. Default: no access.",
        name="grants",
        multiple=True,
    ),
    option(
        "--health-port PORT",
        "Serve /healthz and /readyz without TLS and authentication. Default: not.",
        type=IntegerRange(0, 65535),
        default=0,
        show_default=False,
    ),
    option("--once", "Print the export and exit."),
)


def export_options(command: Callable[[ExportOptions], int]) -> Callable[..., int]:
    """All options of the exporter; the command gets them as one `ExportOptions`."""

    @wraps(command)
    def checked(options: ExportOptions) -> int:
        if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
            raise click.UsageError("--tls-cert-file and --tls-private-key-file go together")
        if bool(options.kubelet_client_certificate) != bool(options.kubelet_client_key):
            raise click.UsageError("--kubelet-client-certificate and --kubelet-client-key go together")
        if options.publish and not options.joins_cluster:
            raise click.UsageError("--publish requires --kubeconfig or --in-cluster")
        return command(options)

    return as_struct(ExportOptions, "options", reversed(_OPTIONS))(checked)
