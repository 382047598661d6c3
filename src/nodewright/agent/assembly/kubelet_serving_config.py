"""The settings of the kubelet's HTTP API, from the configuration and the command line."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.serving.kubelet_routes import KubeletServingConfig
from nodewright.cluster.serving.access import (
    AccessReviews,
    Authorizer,
    CacheTimes,
    TokenFile,
    TokenReviews,
    read_grants,
)
from nodewright.cluster.serving.key_pair import KeyPair, ensure_key_pair
from nodewright.cluster.serving.tls import ReloadingTLS
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

if TYPE_CHECKING:
    from nodewright.cluster.client.access import ClusterAccess

_ALWAYS_ALLOW, _WEBHOOK = "AlwaysAllow", "Webhook"
_NO_API_SERVER = "this agent has no API server for webhooks; "


def serving_config(
    settings: AgentSettings,
    document: Mapping[str, Any],
    config: KubeletConfiguration,
    host: tuple[str, str],
    access: "ClusterAccess | None" = None,
) -> KubeletServingConfig | None:
    """The settings of the HTTP API; None: it is not served.

    ``document`` is the configuration as written, because without an API server (``access``) an explicit webhook
    setting is an error. ``host`` is the name and the address of this machine.

    Errors:  InputError with all unsupported settings; HostError.
    Follows: v1.36, cmd/kubelet/app/auth.go, BuildAuth.
    Departs: without an API server, webhooks that are on by default are off. --grant and --token-auth-file authorize
        users besides the API server.
    """
    if not settings.kubelet_api or not config.enable_server:
        return None
    faults = [*_webhook_faults(document)] if access is None else []
    grants = read_grants(settings.grants, faults)
    tokens = None
    if settings.token_auth_file is not None:
        try:
            tokens = TokenFile(settings.token_auth_file)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    name, address = host
    is_issued = access is not None and config.server_tls_bootstrap
    key_pair = _issued_pair(settings) if is_issued else _key_pair(settings, config, name, address)
    client, reviews = _reviews(config, name, access)
    authorizer = Authorizer(
        grants,
        tokens,
        takes_anonymous=config.authentication.anonymous.enabled,
        allows_all=_authorization_mode(document) == _ALWAYS_ALLOW,
        token_reviews=reviews[0],
        access_reviews=reviews[1],
    )
    tls = ReloadingTLS(key_pair, config, is_issued=is_issued)
    return KubeletServingConfig(config=config, access=authorizer, tls=tls, review_client=client)


def _reviews(
    config: KubeletConfiguration, name: str, access: "ClusterAccess | None"
) -> tuple[AbstractAsyncContextManager[Any] | None, tuple[TokenReviews | None, AccessReviews | None]]:
    """The client for reviews, on a connection of its own, and the reviews that the configuration enables."""
    if access is None:
        return None, (None, None)
    from nodewright.cluster.client.api_client import PlainAccess  # noqa: PLC0415 - for nodes of a cluster only

    api, times = PlainAccess(access), CacheTimes.from_config(config)
    has_tokens, has_access = config.authentication.webhook.enabled, config.authorization.mode == _WEBHOOK
    return api, (
        TokenReviews(api, times) if has_tokens else None,
        AccessReviews(api, name, times) if has_access else None,
    )


def _authorization_mode(document: Mapping[str, Any]) -> str:
    return str((document.get("authorization") or {}).get("mode", ""))


def _webhook_faults(document: Mapping[str, Any]) -> list[Fault]:
    faults = []
    webhook = ((document.get("authentication") or {}).get("webhook") or {}).get("enabled")
    if webhook:
        rule = f"{_NO_API_SERVER}set it to false, and name users with --token-auth-file"
        faults.append(Fault(path="authentication.webhook.enabled", value=True, rule=rule))
    if _authorization_mode(document) == _WEBHOOK:
        rule = f"{_NO_API_SERVER}remove it, and authorize users with --grant"
        faults.append(Fault(path="authorization.mode", value=_WEBHOOK, rule=rule))
    return faults


def _issued_pair(settings: AgentSettings) -> KeyPair:
    """The certificate that the cluster issues, which may not exist yet."""
    from nodewright.agent.member.certificates import SERVER, CertificateStore  # noqa: PLC0415 - only here

    path = CertificateStore(settings.certificate_dir, SERVER).path
    return KeyPair(path, path)


def _key_pair(settings: AgentSettings, config: KubeletConfiguration, name: str, address: str) -> KeyPair:
    certificate, key = config.tls_cert_file, config.tls_private_key_file
    if certificate and key:
        return KeyPair(Path(certificate), Path(key))
    if certificate or key:
        missing = "tlsPrivateKeyFile" if certificate else "tlsCertFile"
        rule = "must be set together: a certificate and its key"
        raise InputError([Fault(path=missing, error="Required value", rule=rule)])
    addresses = tuple(dict.fromkeys(address for address in ("127.0.0.1", "::1", address) if address))
    return ensure_key_pair(settings.certificate_dir, name, addresses)
