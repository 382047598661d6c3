"""The options of `nodewright extender`."""

from pathlib import Path

import click
import msgspec

from nodewright.cluster.exports.export_places import DEFAULT_EXPORT_PORT
from nodewright.documents.output.command_line import FiniteRange, IntegerRange, as_struct, option
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DEFAULT_PORT, DEFAULT_HEALTH_PORT = 9454, 9455


def _lease(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The namespace and name of the Lease. Errors: click.BadParameter."""
    namespace, _, name = value.partition("/")
    for what, part_errors in (
        ("namespace", dns1123_label_errors(namespace)),
        ("name", dns1123_subdomain_errors(name)),
    ):
        if part_errors:
            raise click.BadParameter(f"{what} of NAMESPACE/NAME: {part_errors[0]}", context, parameter)
    return value


class ExtenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line.

    Units: export_max_age in seconds.
    """

    kubeconfig: str | None
    context: str | None
    listen: str
    health_listen: str
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    client_ca_file: Path | None
    token_auth_file: Path | None
    insecure_http: bool
    scheduler_name: tuple[str, ...]
    export_port: int
    export_base: tuple[str, ...]
    export_ca_file: Path | None
    export_client_certificate: Path | None
    export_client_key: Path | None
    export_token_file: Path | None
    export_max_age: float
    strict: bool
    fail: str
    scorer: str
    policies: tuple[str, ...]
    leader_elect: bool
    lease: str
    deny_impossible_pods: bool


_OPTIONS = (
    option("--kubeconfig FILE", "Default: as kubectl; in a pod its service account."),
    option("--context NAME", "A context of the kubeconfig."),
    option("--listen ADDRESS:PORT", "Where schedulers call.", default=f"0.0.0.0:{DEFAULT_PORT}"),
    option(
        "--health-listen ADDRESS:PORT",
        "Where /healthz, /readyz and /metrics are, without TLS.",
        default=f"0.0.0.0:{DEFAULT_HEALTH_PORT}",
    ),
    option("--tls-cert-file FILE", "Default: a self-signed certificate.", type=_FILE),
    option("--tls-private-key-file FILE", "Its key.", type=_FILE),
    option(
        "--client-ca-file FILE",
        "Authorities of client certificates; callers then need one, or a token, and may bind pods.",
        type=_FILE,
    ),
    option(
        "--token-auth-file FILE",
        "Bearer tokens, as of an API server; callers then need one, or a certificate, and may bind pods.",
        type=_FILE,
    ),
    option("--insecure-http", "Serve without TLS, e.g. beside a scheduler in its pod."),
    option(
        "--scheduler-name NAME",
        "Bind only pods whose spec.schedulerName this is. Repeatable. Default: every pod.",
        multiple=True,
    ),
    option(
        "--export-port",
        "Port of exporters at the addresses of their nodes; 0: there are none.",
        type=IntegerRange(0, 65535),
        default=DEFAULT_EXPORT_PORT,
    ),
    option(
        "--export-base URL",
        "A URL below which the annotation of a node may lead as well. Repeatable.",
        multiple=True,
    ),
    option(
        "--export-ca-file FILE",
        "Authorities of exporters. Default: their certificates are not verified.",
        type=_FILE,
    ),
    option("--export-client-certificate FILE", "For exporters that need one.", type=_FILE),
    option("--export-client-key FILE", "Its key.", type=_FILE),
    option("--export-token-file FILE", "The bearer token for exporters.", type=_FILE),
    option(
        "--export-max-age SECONDS",
        "An export that was not confirmed for so long is replaced by a prediction.",
        type=FiniteRange(1.0, 86_400.0),
        default=60.0,
    ),
    option("--strict", "Refuse nodes also on a guess: without a fresh export."),
    option(
        "--fail",
        "Before the cluster has been read: let pods pass unchecked, or refuse calls.",
        type=click.Choice(["open", "closed"]),
        default="closed",
    ),
    option("--scorer NAME", "A node scorer of --policies for prioritize.", default=""),
    option(
        "--policies FILE", "Python file that defines node scorers; it is executed. Repeatable.", multiple=True
    ),
    option("--leader-elect", "Of several processes only one answers, by a Lease."),
    option(
        "--lease NAMESPACE/NAME",
        "The Lease of --leader-elect.",
        default="kube-system/nodewright-extender",
        callback=_lease,
    ),
    option(
        "--deny-impossible-pods",
        "POST /v1/review-pods, a validating webhook: refuse pods that no node can ever hold. Default: warn.",
    ),
)


extender_options = as_struct(ExtenderOptions, "options", reversed(_OPTIONS))
"""Adds the options; the command gets them as `options`."""
