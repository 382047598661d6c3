"""What is wished for, as messages: sandboxes and containers with the labels and annotations that the kubelet gives them."""

import json
from collections.abc import Iterator

from nodewright.core.cgroups.facts import ContainerSettings, unified_text
from nodewright.core.cgroups.rules import huge_page_text
from nodewright.model.objects import Container, ContainerPort, Pod, ResourceList
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.cpu_time import cpu_quota, cpu_shares
from nodewright.values.units import MilliCPU
from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri.security import container_security, sandbox_security
from nodewright.world.ports import ContainerWish, SandboxWish

POD_NAME, POD_NAMESPACE = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"
POD_UID, CONTAINER_NAME = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
HASH, ATTEMPT = "io.kubernetes.container.hash", "io.kubernetes.container.restartCount"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
OWNER, CGROUP, LOGS = "nodewright.io/agent", "nodewright.io/cgroup-parent", "nodewright.io/log-directory"
"""On sandboxes, besides what the kubelet writes there: whose they are, and what their containers need to know."""

_PROTOCOLS = {"UDP": cri.UDP, "SCTP": cri.SCTP}
_PROPAGATION = {
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}
_PERIOD_US = 100_000


def sandbox_config(wish: SandboxWish, owner: str) -> cri.PodSandboxConfig:
    """A sandbox.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_sandbox.go, generatePodSandboxConfig.
    Errors:  WorldError where the pod asks for what there is not.
    """
    pod = wish.pod
    linux = cri.LinuxPodSandboxConfig(
        cgroup_parent=wish.cgroup_parent,
        security_context=sandbox_security(pod),
        resources=resources(wish.settings),
        overhead=_overhead(pod.spec.overhead),
    )
    if pod.spec.security_context is not None:
        linux.sysctls.update({one.name: one.value for one in pod.spec.security_context.sysctls})
    found = sandbox_of(pod, wish.attempt, wish.cgroup_parent, wish.log_directory, owner)
    if wish.resolv_conf:
        found.dns_config.CopyFrom(_resolver(wish.resolv_conf))
    found.port_mappings.extend(port for one in pod.spec.containers for port in _ports(one))
    found.linux.CopyFrom(linux)
    if not pod.spec.host_network:
        found.hostname = wish.hostname
    return found


def sandbox_of(
    pod: Pod, attempt: int, cgroup_parent: str, log_directory: str, owner: str
) -> cri.PodSandboxConfig:
    """As much of a sandbox as has to be told again with each of its containers."""
    metadata = pod.metadata
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=metadata.name, uid=pod.uid, namespace=metadata.namespace, attempt=attempt
        ),
        log_directory=log_directory,
        labels={**metadata.labels, **_pod_labels(pod)},
        annotations={**metadata.annotations, OWNER: owner, CGROUP: cgroup_parent, LOGS: log_directory},
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=cgroup_parent, security_context=sandbox_security(pod)),
    )


def container_config(
    wish: ContainerWish, image_user: tuple[int | None, str], seccomp_root: str
) -> cri.ContainerConfig:
    """A container.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, generateContainerConfig.
    Errors:  WorldError where it must not run as root and would.
    """
    container = wish.container
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=wish.attempt),
        image=cri.ImageSpec(image=wish.image or container.image, user_specified_image=container.image),
        stop_signal=_signal(wish.stop_signal),
        command=wish.command,
        args=wish.args,
        working_dir=wish.working_dir,
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in wish.env.items()],
        mounts=[
            cri.Mount(
                container_path=one.container_path,
                host_path=one.host_path,
                readonly=one.is_read_only,
                propagation=_PROPAGATION.get(one.propagation, cri.PROPAGATION_PRIVATE),
            )
            for one in wish.mounts
        ],
        devices=[
            cri.Device(
                container_path=one.container_path, host_path=one.host_path, permissions=one.permissions
            )
            for one in wish.devices
        ],
        CDI_devices=[cri.CDIDevice(name=name) for name in wish.cdi_devices],
        labels={**_pod_labels(wish.pod), CONTAINER_NAME: container.name},
        annotations={**wish.annotations, **_annotations(wish)},
        log_path=wish.log_path,
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=cri.LinuxContainerConfig(
            resources=resources(wish.settings),
            security_context=container_security(wish.pod, container, image_user, seccomp_root),
        ),
    )


def _signal(name: str) -> str:
    """The runtime's word for a signal; what is none is left to the runtime, as if nothing was said.

    Follows: v1.36, kubelet/kuberuntime/helpers.go, getContainerConfigStopSignal.
    """
    word = name.replace("+", "PLUS").replace("-", "MINUS")
    return word if word in cri.Signal.DESCRIPTOR.values_by_name else "RUNTIME_DEFAULT"


def resources(settings: ContainerSettings) -> cri.LinuxContainerResources:
    """The settings of a container's group, as runtimes take them: 0 and nothing leave a file alone."""
    found = cri.LinuxContainerResources(unified=dict(map(unified_text, settings.unified)))
    if settings.cpu is not None:
        found.cpu_shares = settings.cpu.shares
    if settings.quota is not None:
        found.cpu_quota, found.cpu_period = settings.quota.quota_us, settings.quota.period_us
    if settings.memory is not None:
        found.memory_limit_in_bytes = settings.memory.memory_bytes
    if settings.swap is not None:
        found.memory_swap_limit_in_bytes = settings.swap.memory_bytes
    if settings.oom_score is not None:
        found.oom_score_adj = settings.oom_score.adj
    if settings.cpus is not None:
        found.cpuset_cpus = str(settings.cpus.cpus)
    if settings.mems is not None:
        found.cpuset_mems = str(settings.mems.numa)
    for bound in settings.huge_pages:
        size = huge_page_text(bound.page_bytes)
        if size is not None:
            found.hugepage_limits.add(page_size=size, limit=bound.total_bytes)
    return found


def _overhead(amounts: ResourceList) -> cri.LinuxContainerResources:
    """What the sandbox itself takes, which some runtimes give to a machine of its own."""
    found = cri.LinuxContainerResources()
    if CPU in amounts:
        milli = MilliCPU(amounts[CPU].milli_value())
        found.cpu_shares, found.cpu_quota, found.cpu_period = cpu_shares(milli), cpu_quota(milli), _PERIOD_US
    if MEMORY in amounts:
        found.memory_limit_in_bytes = amounts[MEMORY].value()
    return found


def _pod_labels(pod: Pod) -> dict[str, str]:
    metadata = pod.metadata
    return {POD_NAME: metadata.name, POD_NAMESPACE: metadata.namespace, POD_UID: pod.uid}


def _annotations(wish: ContainerWish) -> dict[str, str]:
    """What the kubelet leaves for the kubelet after it.

    Follows: v1.36, kubelet/kuberuntime/labels.go, newContainerAnnotations.
    """
    pod, container = wish.pod, wish.container
    found = {
        HASH: wish.spec_hash,
        ATTEMPT: str(wish.attempt),
        MESSAGE_PATH: container.termination_message_path,
        MESSAGE_POLICY: container.termination_message_policy,
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        found["io.kubernetes.pod.deletionGracePeriod"] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        found["io.kubernetes.pod.terminationGracePeriod"] = str(pod.spec.termination_grace_period_seconds)
    hook = (container.lifecycle or {}).get("preStop")
    if hook is not None:
        found["io.kubernetes.container.preStopHandler"] = json.dumps(hook, separators=(",", ":"))
    if container.ports:
        ports = [_port_document(port) for port in container.ports]
        found["io.kubernetes.container.ports"] = json.dumps(ports, separators=(",", ":"))
    return found


def _port_document(port: ContainerPort) -> dict[str, str | int]:
    """A port as Go writes it: what is empty is left out, but for the port itself."""
    document: dict[str, str | int] = {
        "name": port.name,
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": port.protocol,
        "hostIP": port.host_ip,
    }
    return {key: value for key, value in document.items() if value or key == "containerPort"}


def _ports(container: Container) -> Iterator[cri.PortMapping]:
    """The ports of a container; of those with one name only the first counts.

    Follows: v1.36, kubelet/container/helpers.go, MakePortMappings.
    """
    names = set[tuple[object, ...]]()
    for port in container.ports:
        family = ("v6" if ":" in port.host_ip else "v4") if port.host_ip else "any"
        without = (family, port.protocol, port.host_ip, port.container_port, port.host_port)
        name: tuple[object, ...] = (port.name,) if port.name else without
        if name not in names:
            names.add(name)
            yield cri.PortMapping(
                protocol=_PROTOCOLS.get(port.protocol, cri.TCP),
                container_port=port.container_port,
                host_port=port.host_port,
                host_ip=port.host_ip,
            )


def _resolver(text: str) -> cri.DNSConfig:
    r"""The three kinds of lines in a resolv.conf that runtimes take; of several searches the last counts.

    >>> print(_resolver("nameserver 10.0.0.10\nsearch a.b b\noptions ndots:5\n"))
    servers: "10.0.0.10"
    searches: "a.b"
    searches: "b"
    options: "ndots:5"
    <BLANKLINE>
    """
    found = cri.DNSConfig()
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                found.servers.append(server)
            case ["search", *domains]:
                found.searches[:] = domains
            case ["options", *options]:
                found.options[:] = options
            case _:
                pass
    return found
