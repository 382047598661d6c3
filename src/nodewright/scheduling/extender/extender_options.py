"""The options of `nodewright extender`."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from nodewright.cluster.exports.export_places import DEFAULT_EXPORT_PORT

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DEFAULT_PORT, DEFAULT_HEALTH_PORT = 9454, 9455


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
    click.option("--kubeconfig", metavar="FILE", help="Default: as kubectl; in a pod its service account."),
    click.option("--context", metavar="NAME", help="A context of the kubeconfig."),
    click.option(
        "--listen",
        default=f"0.0.0.0:{DEFAULT_PORT}",
        show_default=True,
        metavar="ADDRESS:PORT",
        help="Where schedulers call.",
    ),
    click.option(
        "--health-listen",
        default=f"0.0.0.0:{DEFAULT_HEALTH_PORT}",
        show_default=True,
        metavar="ADDRESS:PORT",
        help="Where /healthz, /readyz and /metrics are, without TLS.",
    ),
    click.option("--tls-cert-file", type=_FILE, metavar="FILE", help="Default: a self-signed certificate."),
    click.option("--tls-private-key-file", type=_FILE, metavar="FILE", help="Its key."),
    click.option(
        "--client-ca-file",
        type=_FILE,
        metavar="FILE",
        help="Authorities of client certificates; callers then need one, or a token, and may bind pods.",
    ),
    click.option(
        "--token-auth-file",
        type=_FILE,
        metavar="FILE",
        help="Bearer tokens, as of an API server; callers then need one, or a certificate, and may bind pods.",
    ),
    click.option(
        "--insecure-http", is_flag=True, help="Serve without TLS, e.g. beside a scheduler in its pod."
    ),
    click.option(
        "--scheduler-name",
        multiple=True,
        metavar="NAME",
        help="Bind only pods whose spec.schedulerName this is. Repeatable. Default: every pod.",
    ),
    click.option(
        "--export-port",
        type=click.IntRange(0, 65535),
        default=DEFAULT_EXPORT_PORT,
        show_default=True,
        help="Port of exporters at the addresses of their nodes; 0: there are none.",
    ),
    click.option(
        "--export-base",
        multiple=True,
        metavar="URL",
        help="A URL below which the annotation of a node may lead as well. Repeatable.",
    ),
    click.option(
        "--export-ca-file",
        type=_FILE,
        metavar="FILE",
        help="Authorities of exporters. Default: their certificates are not verified.",
    ),
    click.option(
        "--export-client-certificate", type=_FILE, metavar="FILE", help="For exporters that need one."
    ),
    click.option("--export-client-key", type=_FILE, metavar="FILE", help="Its key."),
    click.option("--export-token-file", type=_FILE, metavar="FILE", help="The bearer token for exporters."),
    click.option(
        "--export-max-age",
        type=click.FloatRange(min=1.0),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="An export that was not confirmed for so long is replaced by a prediction.",
    ),
    click.option("--strict", is_flag=True, help="Refuse nodes also on a guess: without a fresh export."),
    click.option(
        "--fail",
        type=click.Choice(["open", "closed"]),
        default="closed",
        show_default=True,
        help="Before the cluster has been read: let pods pass unchecked, or refuse calls.",
    ),
    click.option("--scorer", default="", metavar="NAME", help="A node scorer of --policies for prioritize."),
    click.option(
        "--policies",
        multiple=True,
        metavar="FILE",
        help="Python file that defines node scorers; it is executed. Repeatable.",
    ),
    click.option("--leader-elect", is_flag=True, help="Of several processes only one answers, by a Lease."),
    click.option(
        "--lease",
        default="kube-system/nodewright-extender",
        show_default=True,
        metavar="NAMESPACE/NAME",
        help="The Lease of --leader-elect.",
    ),
    click.option(
        "--deny-impossible-pods",
        is_flag=True,
        help="POST /v1/review-pods, a validating webhook: refuse pods that no node can ever hold. Default: warn.",
    ),
)


def extender_options(function: Callable[[ExtenderOptions], int]) -> Callable[..., int]:
    """Adds the options; the function gets them as one value."""

    @wraps(function)
    def with_options(**values: Any) -> int:
        return function(ExtenderOptions(**values))

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
