"""What the configuration and the command line want of the kubelet's HTTP API."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodewright.api.access import Access, Grants
from nodewright.api.entries import Role
from nodewright.api.kubelet_serving import Wishes
from nodewright.api.tls import LiveTLS
from nodewright.cli.agent_settings import Settings
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.world.errors import Fault, InputError
from nodewright.world.key_pair import KeyPair, own_key_pair
from nodewright.world.tokens import TokenFile

_ALWAYS_ALLOW, _WEBHOOK = "AlwaysAllow", "Webhook"
_NO_API_SERVER = "this agent has no API server to ask; "


def wishes(
    told: Settings, document: Mapping[str, Any], config: KubeletConfiguration, host: tuple[str, str]
) -> Wishes | None:
    """What the command line and the configuration ask for; None: nobody is to be answered.

    ``document`` is the configuration as it was written: what it says itself of an API server cannot be done.
    ``host`` is the name and the address of this machine.

    Errors:  InputError with all that cannot be done; WorldError.
    Follows: v1.36, cmd/kubelet/app/auth.go, BuildAuth.
    Departs: webhooks that nobody asks for by name are off; who may do what is said by --grant.
    """
    if not told.kubelet_api or not config.enable_server:
        return None
    faults = [*_webhook_faults(document)]
    grants = _grants(told.grants, faults)
    tokens = None
    if told.token_auth_file is not None:
        try:
            tokens = TokenFile(told.token_auth_file)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    name, address = host
    pair = _pair(told, config, name, address)
    access = Access(
        grants,
        tokens,
        takes_anonymous=config.authentication.anonymous.enabled,
        allows_all=_mode(document) == _ALWAYS_ALLOW,
    )
    return Wishes(config=config, access=access, tls=LiveTLS(pair, config))


def _mode(document: Mapping[str, Any]) -> str:
    return str((document.get("authorization") or {}).get("mode", ""))


def _webhook_faults(document: Mapping[str, Any]) -> list[Fault]:
    faults = []
    webhook = ((document.get("authentication") or {}).get("webhook") or {}).get("enabled")
    if webhook:
        rule = f"{_NO_API_SERVER}set it to false, and say with --token-auth-file who is who"
        faults.append(Fault(path="authentication.webhook.enabled", value=True, rule=rule))
    if _mode(document) == _WEBHOOK:
        rule = f"{_NO_API_SERVER}leave it out, and say with --grant who may do what"
        faults.append(Fault(path="authorization.mode", value=_WEBHOOK, rule=rule))
    return faults


def _grants(texts: Sequence[str], faults: list[Fault]) -> Grants:
    users, groups = dict[str, Role](), dict[str, Role]()
    for text in texts:
        role, _, who = text.partition("=")
        kind, _, name = who.partition(":")
        if role not in set(Role) or kind not in ("user", "group") or not name:
            rule = "read=user:NAME, write=user:NAME, read=group:NAME or write=group:NAME is wanted"
            faults.append(Fault(source="--grant", value=text, rule=rule))
            continue
        held = users if kind == "user" else groups
        if held.get(name) is not Role.WRITE:
            held[name] = Role(role)
    return Grants(users, groups)


def _pair(told: Settings, config: KubeletConfiguration, name: str, address: str) -> KeyPair:
    certificate, key = config.tls_cert_file, config.tls_private_key_file
    if certificate and key:
        return KeyPair(Path(certificate), Path(key))
    if certificate or key:
        missing = "tlsPrivateKeyFile" if certificate else "tlsCertFile"
        rule = "a certificate and its key go together"
        raise InputError([Fault(path=missing, error="Required value", rule=rule)])
    addresses = tuple(dict.fromkeys(one for one in ("127.0.0.1", "::1", address) if one))
    return own_key_pair(told.root_dir / "pki", name, addresses)
