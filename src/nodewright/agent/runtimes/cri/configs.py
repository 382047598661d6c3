"""CRI messages for sandbox and container configs: labels, annotations, resources and security contexts."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nodewright.agent.host.ports import ContainerConfig, DeviceSpec, Mount, PodSandboxConfig
from nodewright.agent.rules.container_security import effective_setting, run_as_non_root_violation
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.engine.core.cgroups.cgroup_config import huge_page_size_name
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings, unified_file
from nodewright.engine.core.cgroups.cpu_weight import cpu_shares
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.kubernetes.pod_spec_fields import ContainerPort, PodSecurityContext
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.values.cpu_time import cpu_quota
from nodewright.model.values.quantity import MilliCPU

POD_NAME, POD_NAMESPACE = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"
POD_UID, CONTAINER_NAME = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
CONTAINER_HASH, RESTART_COUNT = "io.kubernetes.container.hash", "io.kubernetes.container.restartCount"
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
OWNER, CGROUP_PARENT = "nodewright.io/agent", "nodewright.io/cgroup-parent"
LOG_DIRECTORY, HOSTNAME = "nodewright.io/log-directory", "nodewright.io/hostname"
"""On sandboxes, in addition to the kubelet's: their owner, and what their containers need to know."""

_PROTOCOLS = {"UDP": cri.UDP, "SCTP": cri.SCTP}
_PROPAGATION = {
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}
_CFS_PERIOD_US = 100_000


def sandbox_config(config: PodSandboxConfig, owner: str) -> cri.PodSandboxConfig:
    """The message for a sandbox.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_sandbox.go, generatePodSandboxConfig.
    Errors:  HostError where the pod needs something that is not supported.
    """
    pod = config.pod
    linux = cri.LinuxPodSandboxConfig(
        cgroup_parent=config.cgroup_parent,
        security_context=sandbox_security(pod),
        resources=linux_container_resources(config.settings),
        overhead=_overhead_resources(pod.spec.overhead or {}),
    )
    if pod.spec.security_context is not None:
        linux.sysctls.update({sysctl.name: sysctl.value for sysctl in pod.spec.security_context.sysctls})
    sandbox = sandbox_reference(pod, config.attempt, config.cgroup_parent, config.log_directory, owner)
    if config.resolv_conf:
        sandbox.dns_config.CopyFrom(_dns_config(config.resolv_conf))
    sandbox.port_mappings.extend(
        port for container in pod.spec.containers for port in _port_mappings(container)
    )
    sandbox.linux.CopyFrom(linux)
    if not pod.spec.host_network:
        sandbox.hostname = config.hostname
        sandbox.annotations[HOSTNAME] = config.hostname
    return sandbox


def sandbox_reference(
    pod: Pod, attempt: int, cgroup_parent: str, log_directory: str, owner: str
) -> cri.PodSandboxConfig:
    """The part of a sandbox's config that is the same for its containers."""
    metadata = pod.metadata
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=metadata.name, uid=pod.uid, namespace=metadata.namespace, attempt=attempt
        ),
        log_directory=log_directory,
        labels={**metadata.labels, **_pod_labels(pod)},
        annotations={
            **metadata.annotations,
            OWNER: owner,
            CGROUP_PARENT: cgroup_parent,
            LOG_DIRECTORY: log_directory,
        },
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=cgroup_parent, security_context=sandbox_security(pod)),
    )


def existing_sandbox_config(pod: Pod, sandbox: cri.PodSandbox, owner: str) -> cri.PodSandboxConfig:
    """The part of an existing sandbox's config that has to be repeated for each of its containers."""
    annotations = sandbox.annotations
    config = sandbox_reference(
        pod, sandbox.metadata.attempt, annotations[CGROUP_PARENT], annotations[LOG_DIRECTORY], owner
    )
    # The runtime sets the variable HOSTNAME by it.
    config.hostname = annotations.get(HOSTNAME, "")
    return config


def container_config(
    config: ContainerConfig, image_user: tuple[int | None, str], seccomp_root: str
) -> cri.ContainerConfig:
    """The message for a container.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, generateContainerConfig.
    Errors:  HostError where it must not run as root and would.
    """
    container = config.container
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=config.attempt),
        image=cri.ImageSpec(image=config.image or container.image, user_specified_image=container.image),
        stop_signal=_stop_signal(config.stop_signal),
        command=config.command,
        args=config.args,
        working_dir=config.working_dir,
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in config.env.items()],
        mounts=[_mount(mount) for mount in config.mounts],
        devices=[_device(device) for device in config.devices],
        CDI_devices=[cri.CDIDevice(name=name) for name in config.cdi_devices],
        labels={**_pod_labels(config.pod), CONTAINER_NAME: container.name},
        annotations={**config.annotations, **_container_annotations(config)},
        log_path=config.log_path,
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=cri.LinuxContainerConfig(
            resources=linux_container_resources(config.settings),
            security_context=container_security(
                config.pod, container, image_user, seccomp_root, target_id=config.target_id
            ),
        ),
    )


def _mount(mount: Mount) -> cri.Mount:
    return cri.Mount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.is_read_only,
        propagation=_PROPAGATION.get(mount.propagation, cri.PROPAGATION_PRIVATE),
    )


def _device(device: DeviceSpec) -> cri.Device:
    return cri.Device(
        container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
    )


def _stop_signal(name: str) -> str:
    """CRI's name of a signal; for an unknown name the runtime's default.

    Follows: v1.36, kubelet/kuberuntime/helpers.go, getContainerConfigStopSignal.
    """
    word = name.replace("+", "PLUS").replace("-", "MINUS")
    return word if word in cri.Signal.DESCRIPTOR.values_by_name else "RUNTIME_DEFAULT"


def linux_container_resources(settings: ContainerSettings) -> cri.LinuxContainerResources:
    """A container's settings as a CRI message: an unset field leaves the cgroup file unchanged."""
    resources = cri.LinuxContainerResources(unified=dict(map(unified_file, settings.unified)))
    if settings.cpu is not None:
        resources.cpu_shares = settings.cpu.shares
    if settings.quota is not None:
        resources.cpu_quota, resources.cpu_period = settings.quota.quota_us, settings.quota.period_us
    if settings.memory is not None:
        resources.memory_limit_in_bytes = settings.memory.memory_bytes
    if settings.swap is not None:
        resources.memory_swap_limit_in_bytes = settings.swap.memory_bytes
    if settings.oom_score is not None:
        resources.oom_score_adj = settings.oom_score.adj
    if settings.cpus is not None:
        resources.cpuset_cpus = str(settings.cpus.cpus)
    if settings.mems is not None:
        resources.cpuset_mems = str(settings.mems.numa)
    for bound in settings.huge_pages:
        size = huge_page_size_name(bound.page_bytes)
        if size is not None:
            resources.hugepage_limits.add(page_size=size, limit=bound.total_bytes)
    return resources


def _overhead_resources(amounts: ResourceList) -> cri.LinuxContainerResources:
    """The overhead of the sandbox itself, for runtimes that run it in a virtual machine."""
    resources = cri.LinuxContainerResources()
    if CPU in amounts:
        milli = MilliCPU(amounts[CPU].milli_value())
        resources.cpu_shares = cpu_shares(milli)
        resources.cpu_quota, resources.cpu_period = cpu_quota(milli), _CFS_PERIOD_US
    if MEMORY in amounts:
        resources.memory_limit_in_bytes = amounts[MEMORY].value()
    return resources


def _pod_labels(pod: Pod) -> dict[str, str]:
    metadata = pod.metadata
    return {POD_NAME: metadata.name, POD_NAMESPACE: metadata.namespace, POD_UID: pod.uid}


def _container_annotations(config: ContainerConfig) -> dict[str, str]:
    """The annotations that a kubelet leaves for its successor.

    Follows: v1.36, kubelet/kuberuntime/labels.go, newContainerAnnotations.
    """
    pod, container = config.pod, config.container
    annotations = {
        CONTAINER_HASH: config.spec_hash,
        RESTART_COUNT: str(config.attempt),
        TERMINATION_MESSAGE_PATH: container.termination_message_path,
        TERMINATION_MESSAGE_POLICY: container.termination_message_policy,
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        annotations["io.kubernetes.pod.deletionGracePeriod"] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        annotations["io.kubernetes.pod.terminationGracePeriod"] = str(
            pod.spec.termination_grace_period_seconds
        )
    hook = (container.lifecycle or {}).get("preStop")
    if hook is not None:
        annotations["io.kubernetes.container.preStopHandler"] = json.dumps(hook, separators=(",", ":"))
    if container.ports:
        ports = [_port_document(port) for port in container.ports]
        annotations["io.kubernetes.container.ports"] = json.dumps(ports, separators=(",", ":"))
    return annotations


def _port_document(port: ContainerPort) -> dict[str, str | int]:
    """A port as Go encodes it: empty fields are omitted, except for the container port."""
    document: dict[str, str | int] = {
        "name": port.name,
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": port.protocol,
        "hostIP": port.host_ip,
    }
    return {key: value for key, value in document.items() if value or key == "containerPort"}


def _port_mappings(container: Container) -> Iterator[cri.PortMapping]:
    """The port mappings of a container; of several ports with one name only the first counts.

    Follows: v1.36, kubelet/container/helpers.go, MakePortMappings.
    """
    keys = set[tuple[object, ...]]()
    for port in container.ports:
        family = ("v6" if ":" in port.host_ip else "v4") if port.host_ip else "any"
        unnamed_key = (family, port.protocol, port.host_ip, port.container_port, port.host_port)
        key: tuple[object, ...] = (port.name,) if port.name else unnamed_key
        if key not in keys:
            keys.add(key)
            yield cri.PortMapping(
                protocol=_PROTOCOLS.get(port.protocol, cri.TCP),
                container_port=port.container_port,
                host_port=port.host_port,
                host_ip=port.host_ip,
            )


def _dns_config(text: str) -> cri.DNSConfig:
    r"""The lines of a resolv.conf that CRI knows; of several search lines the last counts.

    >>> print(_dns_config("nameserver 10.0.0.10\nsearch a.b b\noptions ndots:5\n"))
    servers: "10.0.0.10"
    searches: "a.b"
    searches: "b"
    options: "ndots:5"
    <BLANKLINE>
    """
    dns_config = cri.DNSConfig()
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                dns_config.servers.append(server)
            case ["search", *domains]:
                dns_config.searches[:] = domains
            case ["options", *options]:
                dns_config.options[:] = options
            case _:
                pass
    return dns_config


# ---------------------------------------------------------------- security contexts


READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
MASKED_PATHS = (
    *("/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys"),
    *("/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug"),
    *("/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"),
)
_APP_ARMOR_NAMES = {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}


def sandbox_security(pod: Pod) -> cri.LinuxSandboxSecurityContext:
    """The security context of a pod's sandbox; its own processes run with the runtime's default restrictions.

    Follows: v1.36, kubelet/kuberuntime/security_context.go and kuberuntime_sandbox.go.
    """
    pod_context = pod.spec.security_context
    security_context = cri.LinuxSandboxSecurityContext(
        privileged=any(
            _has_flag(container, "privileged")
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
        namespace_options=namespaces(pod),
    )
    if pod_context is not None:
        security_context.supplemental_groups.extend(_supplemental_groups(pod_context))
        security_context.supplemental_groups_policy = _supplemental_groups_policy(pod_context)
        if pod_context.run_as_user is not None:
            security_context.run_as_user.value = pod_context.run_as_user
        if pod_context.run_as_group is not None:
            security_context.run_as_group.value = pod_context.run_as_group
        if pod_context.se_linux_options:
            security_context.selinux_options.CopyFrom(cri.SELinuxOption(**pod_context.se_linux_options))
    return security_context


def container_security(
    pod: Pod,
    container: Container,
    image_user: tuple[int | None, str],
    seccomp_root: str,
    *,
    target_id: str = "",
) -> cri.LinuxContainerSecurityContext:
    """The security context of a container: its own settings, then the pod's, then the image's.

    ``target_id``: the container whose processes it sees.

    Errors: HostError where it must not run as root and would, or may.
    """
    container_context = container.security_context or {}
    pod_context = pod.spec.security_context or PodSecurityContext()
    uid, gid = effective_setting(pod, container, "runAsUser"), effective_setting(pod, container, "runAsGroup")
    violation = run_as_non_root_violation(pod, container, image_user)
    if violation:
        raise HostError("create container", container.name, violation)
    is_unmasked = container_context.get("procMount") == "Unmasked"
    security_context = cri.LinuxContainerSecurityContext(
        privileged=_has_flag(container, "privileged"),
        readonly_rootfs=_has_flag(container, "readOnlyRootFilesystem"),
        no_new_privs=container_context.get("allowPrivilegeEscalation") is False,
        namespace_options=namespaces(pod, target_id),
        supplemental_groups=_supplemental_groups(pod_context),
        supplemental_groups_policy=_supplemental_groups_policy(pod_context),
        masked_paths=() if is_unmasked else masked_paths(),
        readonly_paths=() if is_unmasked else READONLY_PATHS,
        seccomp=_seccomp_profile(effective_setting(pod, container, "seccompProfile"), seccomp_root),
    )
    _set_user(security_context, (uid, gid), image_user)
    capabilities = container_context.get("capabilities")
    if capabilities is not None:
        security_context.capabilities.add_capabilities.extend(capabilities.get("add") or ())
        security_context.capabilities.drop_capabilities.extend(capabilities.get("drop") or ())
    labels = effective_setting(pod, container, "seLinuxOptions")
    if labels:
        security_context.selinux_options.CopyFrom(cri.SELinuxOption(**labels))
    _set_app_armor_profile(security_context, effective_setting(pod, container, "appArmorProfile"))
    return security_context


def _set_user(
    security_context: cri.LinuxContainerSecurityContext,
    ids: tuple[int | None, int | None],
    image_user: tuple[int | None, str],
) -> None:
    """Sets user and group; without them those of the image."""
    uid = image_user[0] if ids[0] is None else ids[0]
    if uid is not None:
        security_context.run_as_user.value = uid
    else:
        security_context.run_as_username = image_user[1]
    if ids[1] is not None:
        security_context.run_as_group.value = ids[1]


def namespaces(pod: Pod, target_id: str = "") -> cri.NamespaceOption:
    """The namespaces that the pod has for itself, and those that it shares with the host.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, NamespacesForPod.
    Errors:  HostError: user namespaces are not supported.
    """
    spec = pod.spec
    if spec.host_users is False:
        raise HostError(
            "run pod", pod.full_name, "hostUsers: false needs user namespaces, which are not supported"
        )
    pid = cri.POD if spec.share_process_namespace else cri.CONTAINER
    is_targeted = bool(target_id) and not spec.host_pid and not spec.share_process_namespace
    if is_targeted:
        pid = cri.TARGET
    return cri.NamespaceOption(
        target_id=target_id if is_targeted else "",
        network=cri.NODE if spec.host_network else cri.POD,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
        pid=cri.NODE if spec.host_pid else pid,
    )


@cache
def masked_paths() -> tuple[str, ...]:
    """The paths of `/proc` and `/sys` that are masked in containers, unless procMount is Unmasked."""
    throttles = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))
    return (*MASKED_PATHS, *map(str, throttles))


def _seccomp_profile(profile: Mapping[str, Any] | None, root: str) -> cri.SecurityProfile:
    """The seccomp profile; without one, Unconfined."""
    security_profile = cri.SecurityProfile
    match (profile or {}).get("type", "Unconfined"):
        case "RuntimeDefault":
            return security_profile(profile_type=security_profile.RuntimeDefault)
        case "Localhost":
            name = (profile or {}).get("localhostProfile", "")
            return security_profile(profile_type=security_profile.Localhost, localhost_ref=f"{root}/{name}")
        case _:
            return security_profile(profile_type=security_profile.Unconfined)


def _set_app_armor_profile(
    security_context: cri.LinuxContainerSecurityContext, profile: Mapping[str, Any] | None
) -> None:
    """Sets the AppArmor profile, in CRI's current and in its deprecated field."""
    if profile is None:
        return
    kind, name = profile.get("type", ""), profile.get("localhostProfile", "")
    profiles = cri.SecurityProfile
    kinds = {"RuntimeDefault": profiles.RuntimeDefault, "Unconfined": profiles.Unconfined}
    security_context.apparmor.profile_type = kinds.get(kind, profiles.Localhost)
    if kind == "Localhost":
        security_context.apparmor.localhost_ref = name
    security_context.apparmor_profile = _APP_ARMOR_NAMES.get(kind, f"localhost/{name}")


def _supplemental_groups(pod_context: PodSecurityContext) -> tuple[int, ...]:
    own = () if pod_context.fs_group is None else (pod_context.fs_group,)
    return (*own, *pod_context.supplemental_groups)


def _supplemental_groups_policy(pod_context: PodSecurityContext) -> cri.SupplementalGroupsPolicy:
    return cri.Strict if pod_context.supplemental_groups_policy == "Strict" else cri.Merge


def _has_flag(container: Container, name: str) -> bool:
    return bool((container.security_context or {}).get(name))
