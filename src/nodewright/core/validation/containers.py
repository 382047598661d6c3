"""Containers: names, ports, restart policies, and what init containers may not have."""

from collections.abc import Iterable, Iterator, Sequence

from nodewright.core.validation.names import label_rules
from nodewright.core.validation.resources import container_violations
from nodewright.core.validation.violation import (
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.objects import Container, ContainerPort, PodSpec

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"


def all_container_violations(spec: PodSpec, path: str) -> Iterator[Violation]:
    """What the API server has against the containers, init containers among them.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainers and validateInitContainers.
    Departs: only names, ports, resources and what makes a sidecar are looked at: no images, mounts, probes.
    """
    claims = frozenset(str(claim["name"]) for claim in spec.resource_claims if claim.get("name"))
    if not spec.containers:
        yield required(f"{path}.containers")
    names: set[str] = set()
    for index, container in enumerate(spec.containers):
        here = f"{path}.containers[{index}]"
        yield from _common_violations(container, here, claims)
        yield from _name_taken(container.name, here, names)
        yield from _restart_violations(container, here)
    ports = [(f"{path}.containers[{index}]", one) for index, one in enumerate(spec.containers)]
    yield from _port_conflicts(ports, host_network=spec.host_network)
    for index, container in enumerate(spec.init_containers):
        here = f"{path}.initContainers[{index}]"
        yield from _common_violations(container, here, claims)
        yield from _restart_violations(container, here)
        yield from _name_taken(container.name, here, names)
        # One after the other they run, so that only a container's own ports can collide.
        yield from _port_conflicts([(here, container)], host_network=spec.host_network)
        yield from _for_sidecars_only(container, here)
    if spec.host_network:
        yield from _host_network_violations(spec.containers, f"{path}.containers")


def _common_violations(container: Container, path: str, claims: frozenset[str]) -> Iterator[Violation]:
    if container.name:
        yield from each_invalid(f"{path}.name", container.name, label_rules(container.name))
    else:
        yield required(f"{path}.name")
    for index, port in enumerate(container.ports):
        yield from _port_violations(port, f"{path}.ports[{index}]")
    yield from container_violations(container.resources, f"{path}.resources", claims)


def _name_taken(name: str, path: str, names: set[str]) -> Iterator[Violation]:
    if name and name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)


def _restart_violations(container: Container, path: str) -> Iterator[Violation]:
    policy = container.restart_policy
    if policy is not None and policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)


def _for_sidecars_only(container: Container, path: str) -> Iterator[Violation]:
    if container.is_sidecar:
        return
    for field, value in (
        ("lifecycle", container.lifecycle),
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if value is not None:
            yield forbidden(f"{path}.{field}", _ONLY_SIDECARS)


def _port_violations(port: ContainerPort, path: str) -> Iterator[Violation]:
    if port.container_port == 0:
        yield required(f"{path}.containerPort")
    else:
        yield from _port_number(port.container_port, f"{path}.containerPort")
    if port.host_port != 0:
        yield from _port_number(port.host_port, f"{path}.hostPort")
    if port.protocol and port.protocol not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", port.protocol, _PROTOCOLS)


def _port_number(number: int, path: str) -> Iterator[Violation]:
    if not 1 <= number <= 65535:
        yield invalid(path, number, "must be between 1 and 65535, inclusive")


def _port_conflicts(
    containers: Iterable[tuple[str, Container]], *, host_network: bool
) -> Iterator[Violation]:
    """Host ports that occur more than once; on the host's network every port is one.

    Follows: v1.36, pkg/apis/core/validation/validation.go, AccumulateUniqueHostPorts.
    """
    seen: set[str] = set()
    for path, container in containers:
        for index, port in enumerate(container.ports):
            number = port.host_port or (port.container_port if host_network else 0)
            key = f"{port.protocol or 'TCP'}/{port.host_ip}/{number}"
            if number and key in seen:
                yield duplicate(f"{path}.ports[{index}].hostPort", key)
            seen.add(key)


def _host_network_violations(containers: Sequence[Container], path: str) -> Iterator[Violation]:
    """Host ports that differ from the container's own on the host's network.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodHostNetworkDeps; a pod that says no
        host port is given the right one before.
    """
    for number, container in enumerate(containers):
        for index, port in enumerate(container.ports):
            if port.host_port not in (0, port.container_port):
                rule = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(f"{path}[{number}].ports[{index}].hostPort", port.host_port, rule)
