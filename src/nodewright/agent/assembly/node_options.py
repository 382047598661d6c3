"""The options of the agent about its Node object: labels, taints, addresses; and what the last agent knew of it."""

import ipaddress
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.documents.formats.decode import decode
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.objects import Taint

NODE_OBJECT = "node-object.json"
"""In the root directory: labels and taints of the Node object. An agent that starts while the API server is gone admits
its pods by them."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_OPEN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OPEN_LABELS = frozenset(
    [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ]
)
_NO_LOCAL_ADDRESS = "must be an address of this machine, no loopback, link-local or multicast address"


class SavedNodeObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the Node object said last."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


def saved_node_object(root_dir: Path) -> SavedNodeObject:
    """What the last agent knew of the Node object; nothing where there is no such file, or none that can be read."""
    with suppress(OSError, *JSON_ERRORS):
        return decode(json.loads((root_dir / NODE_OBJECT).read_text("utf-8")), SavedNodeObject)
    return SavedNodeObject()


def configured_labels(settings: AgentSettings) -> dict[str, str]:
    """The labels of --node-labels.

    Follows: v1.36, cmd/kubelet/app/options/options.go, ValidateKubeletFlags; pkg/kubelet/apis/well_known_labels.go.
    Errors:  InputError.
    """
    labels, faults = dict[str, str](), []
    for text in _items(settings.node_labels):
        key, separator, value = text.partition("=")
        if not separator or not key:
            faults.append(Fault(source="--node-labels", value=text, rule="must be KEY=VALUE"))
        elif _is_reserved(key):
            domains = " and ".join(_OPEN_DOMAINS)
            rule = f"labels of kubernetes.io and k8s.io are reserved, except those of {domains} and the well-known ones"
            faults.append(Fault(source="--node-labels", value=key, rule=rule))
        labels[key] = value
    if faults:
        raise InputError(faults)
    return labels


def _is_reserved(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return (
        key not in _OPEN_LABELS
        and any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS)
        and not any(domain == open_ or domain.endswith(f".{open_}") for open_ in _OPEN_DOMAINS)
    )


def configured_taints(settings: AgentSettings) -> tuple[Taint, ...]:
    """The taints of --register-with-taints.

    Errors: InputError.
    """
    taints, faults = [], []
    for text in _items(settings.register_with_taints):
        key_value, _, effect = text.rpartition(":")
        key, _, value = key_value.partition("=")
        if not key or effect not in _EFFECTS:
            rule = f"must be KEY=VALUE:EFFECT, with one of the effects {', '.join(_EFFECTS)}"
            faults.append(Fault(source="--register-with-taints", value=text, rule=rule))
        taints.append(Taint(key=key, value=value, effect=effect))
    if faults:
        raise InputError(faults)
    return tuple(taints)


def node_addresses(settings: AgentSettings) -> tuple[str, ...]:
    """The addresses of --node-ip; none: the agent finds one.

    Follows: v1.36, kubelet/kubelet_node_status.go, validateNodeIP.
    Errors:  InputError.
    """
    addresses, faults = [], []
    for text in _items((settings.node_ip,)):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            faults.append(Fault(source="--node-ip", value=text, rule="must be an IP address"))
            continue
        if address.is_loopback or address.is_multicast or address.is_link_local:
            faults.append(Fault(source="--node-ip", value=text, rule=_NO_LOCAL_ADDRESS))
        elif not address.is_unspecified:
            addresses.append(str(address))
    if len(addresses) > 2:
        faults.append(
            Fault(
                source="--node-ip",
                value=settings.node_ip,
                rule="must be one address, or one each of IPv4 and IPv6",
            )
        )
    if faults:
        raise InputError(faults)
    return tuple(addresses)


def _items(texts: Sequence[str]) -> list[str]:
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]
