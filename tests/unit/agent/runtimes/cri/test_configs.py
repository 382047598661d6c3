"""Pods and containers become the messages that a kubelet would send."""

import pytest
from msgspec.structs import replace

from nodewright.agent.host.ports import ContainerConfig, DeviceSpec, Mount, PodSandboxConfig
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.configs import (
    OWNER,
    container_config,
    container_security,
    linux_container_resources,
    namespaces,
    sandbox_config,
    sandbox_security,
)
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    ContainerSettings,
    CPUPool,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    MemoryCeiling,
    MemoryFrom,
    MemoryProtection,
    RunsOn,
)
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.model.kubernetes.pod_spec_fields import ContainerPort, EnvVar, PodSecurityContext, Sysctl
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU, Quantity

ROOT = (0, "")
WEB = ObjectMeta(name="web", namespace="shop", uid="u1", labels={"tier": "front"}, annotations={"a": "b"})


def a_pod(*containers: Container, **spec: object) -> Pod:
    return Pod(WEB, PodSpec(containers=containers or (Container(name="app"),), **spec))  # type: ignore[arg-type] # fields by name


def a_container_config(container: Container) -> ContainerConfig:
    return ContainerConfig(
        pod=a_pod(container),
        container=container,
        attempt=2,
        spec_hash="ab12",
        command=("sh",),
        args=("-c", "x"),
        env={"A": "1"},
        image="sha256:11",
        log_path="app/2.log",
        mounts=(Mount(host_path="/h", container_path="/c", is_read_only=True, propagation="Bidirectional"),),
        devices=(DeviceSpec(host_path="/dev/h", container_path="/dev/c"),),
        cdi_devices=("vendor/gpu=0",),
        annotations={"plugin": "says"},
        settings=ContainerSettings(),
        cgroup_files=(),
    )


def rights(pod: Pod, user: tuple[int | None, str] = ROOT) -> cri.LinuxContainerSecurityContext:
    return container_security(pod, pod.spec.containers[0], user, "/seccomp")


def test_a_sandbox_is_labelled_with_its_pod_and_owner() -> None:
    pod = a_pod(overhead={"cpu": Quantity.parse("250m"), "memory": Quantity.parse("1Mi")})
    sandbox = PodSandboxConfig(
        pod=pod,
        attempt=3,
        cgroup_parent="/kubepods/podu1",
        log_directory="/logs",
        hostname="web",
        resolv_conf="# made\nnameserver 10.0.0.10\nsearch shop.svc svc\noptions ndots:5\nsortlist 1\n",
    )
    config = sandbox_config(sandbox, "me")
    assert (config.metadata.name, config.metadata.uid, config.metadata.attempt) == ("web", "u1", 3)
    assert dict(config.labels) == {
        "tier": "front",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.pod.uid": "u1",
    }
    assert (config.annotations["a"], config.annotations[OWNER]) == ("b", "me")
    assert (config.hostname, config.linux.cgroup_parent) == ("web", "/kubepods/podu1")
    assert list(config.dns_config.searches) == ["shop.svc", "svc"]
    assert (config.linux.overhead.cpu_shares, config.linux.overhead.memory_limit_in_bytes) == (256, 1 << 20)


def test_a_pod_on_the_hosts_network_has_no_name_of_its_own() -> None:
    sandbox = PodSandboxConfig(
        pod=a_pod(host_network=True), attempt=0, cgroup_parent="", log_directory="", hostname="web"
    )
    assert sandbox_config(sandbox, "me").hostname == ""


def test_of_ports_with_one_name_the_first_counts() -> None:
    ports = (
        ContainerPort(name="http", container_port=80, host_port=8080, protocol="TCP"),
        ContainerPort(name="http", container_port=81, protocol="TCP"),
        ContainerPort(container_port=53, protocol="UDP", host_ip="::1"),
    )
    sandbox = PodSandboxConfig(
        pod=a_pod(Container(name="app", ports=ports)), attempt=0, cgroup_parent="", log_directory=""
    )
    rows = [
        (mapping.container_port, mapping.host_port, mapping.protocol)
        for mapping in sandbox_config(sandbox, "").port_mappings
    ]
    assert rows == [(80, 8080, cri.TCP), (53, 0, cri.UDP)]


def test_a_containers_config_is_complete() -> None:
    container = Container(
        name="app",
        image="shop/web:1",
        env=(EnvVar("A", "not used here"),),
        ports=(ContainerPort(container_port=80, protocol="TCP"),),
        lifecycle={"preStop": {"exec": {"command": ["bye"]}}},
        termination_message_path="/dev/termination-log",
        termination_message_policy="File",
        tty=True,
    )
    config = container_config(a_container_config(container), ROOT, "/seccomp")
    assert (config.metadata.name, config.metadata.attempt, config.log_path) == ("app", 2, "app/2.log")
    assert (config.image.image, config.image.user_specified_image) == ("sha256:11", "shop/web:1")
    assert [(env.key, env.value) for env in config.envs] == [("A", b"1")]
    assert config.mounts[0].propagation == cri.PROPAGATION_BIDIRECTIONAL
    assert config.CDI_devices[0].name == "vendor/gpu=0"
    assert dict(config.annotations) == {
        "plugin": "says",
        "io.kubernetes.container.hash": "ab12",
        "io.kubernetes.container.restartCount": "2",
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.container.preStopHandler": '{"exec":{"command":["bye"]}}',
        "io.kubernetes.container.ports": '[{"containerPort":80,"protocol":"TCP"}]',
    }


@pytest.mark.parametrize(
    ("name", "number"),
    [("", 0), ("SIGTERM", 23), ("SIGRTMIN+15", 50), ("SIGRTMAX-1", 64), ("SIGRTMAX", 65), ("SIGNONE", 0)],
)
def test_a_container_has_its_own_stop_signal(name: str, number: int) -> None:
    sandbox = replace(a_container_config(Container(name="app")), stop_signal=name)
    assert container_config(sandbox, ROOT, "/seccomp").stop_signal == number


def test_settings_become_the_runtimes_amounts() -> None:
    settings = ContainerSettings(
        cpu=CPUShares(Shares(512), MilliCPU(500), AmountOrigin.REQUEST),
        quota=CPUQuota(quota_us=Microseconds(50_000), period_us=Microseconds(100_000)),
        memory=MemoryCeiling(Bytes(1 << 30), AmountOrigin.LIMIT),
        cpus=RunsOn(CPUSet.parse("2-3"), CPUPool.EXCLUSIVE),
        mems=MemoryFrom(NUMASet.parse("1")),
        huge_pages=(HugePageCeiling(Bytes(2 << 20), Bytes(4 << 20), AmountOrigin.LIMIT),),
        unified=(MemoryProtection("memory.min", Bytes(4096), AmountOrigin.REQUEST),),
    )
    container_resources = linux_container_resources(settings)
    assert (
        container_resources.cpu_shares,
        container_resources.cpu_quota,
        container_resources.cpu_period,
    ) == (512, 50_000, 100_000)
    assert (
        container_resources.memory_limit_in_bytes,
        container_resources.cpuset_cpus,
        container_resources.cpuset_mems,
    ) == (1 << 30, "2-3", "1")
    assert [(limit.page_size, limit.limit) for limit in container_resources.hugepage_limits] == [
        ("2MB", 4 << 20)
    ]
    assert dict(container_resources.unified) == {"memory.min": "4096"}
    assert linux_container_resources(ContainerSettings()) == cri.LinuxContainerResources()


def test_a_containers_own_rights_come_before_the_pods() -> None:
    of_pod = PodSecurityContext(
        run_as_user=1000,
        run_as_group=1001,
        fs_group=2000,
        supplemental_groups=(3000,),
        supplemental_groups_policy="Strict",
        seccomp_profile={"type": "RuntimeDefault"},
        se_linux_options={"level": "s0"},
    )
    own = {
        "runAsUser": 7,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "mine.json"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "armour"},
    }
    security_context = rights(a_pod(Container(name="app", security_context=own), security_context=of_pod))
    assert (security_context.run_as_user.value, security_context.run_as_group.value) == (7, 1001)
    assert (security_context.readonly_rootfs, security_context.no_new_privs, security_context.privileged) == (
        True,
        True,
        False,
    )
    assert list(security_context.supplemental_groups) == [2000, 3000]
    assert security_context.supplemental_groups_policy == cri.Strict
    assert list(security_context.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert security_context.seccomp.localhost_ref == "/seccomp/mine.json"
    assert (security_context.apparmor.localhost_ref, security_context.apparmor_profile) == (
        "armour",
        "localhost/armour",
    )
    assert security_context.selinux_options.level == "s0"
    assert "/proc/kcore" in security_context.masked_paths


def test_without_a_security_context_the_image_user_runs_unconfined() -> None:
    security_context = rights(a_pod(), (None, "somebody"))
    assert (security_context.run_as_username, security_context.HasField("run_as_user")) == ("somebody", False)
    assert security_context.seccomp.profile_type == cri.SecurityProfile.Unconfined
    assert rights(a_pod(), (33, "")).run_as_user.value == 33


def test_nothing_is_hidden_of_proc_where_it_is_unmasked() -> None:
    security_context = rights(a_pod(Container(name="app", security_context={"procMount": "Unmasked"})))
    assert not [*security_context.masked_paths, *security_context.readonly_paths]


NOT_ROOT = [
    (0, (5, ""), "container's runAsUser breaks non-root policy"),
    (None, (0, ""), "container has runAsNonRoot and image will run as root"),
    (None, (None, "joe"), "container has runAsNonRoot and image has non-numeric user (joe), cannot verify"),
    (None, (-1, ""), "container has runAsNonRoot and image has an invalid user id (-1)"),
]


@pytest.mark.parametrize(("uid", "image_user", "said"), NOT_ROOT)
def test_run_as_non_root_is_enforced(uid: int | None, image_user: tuple[int | None, str], said: str) -> None:
    pod = a_pod(security_context=PodSecurityContext(run_as_user=uid, run_as_non_root=True))
    with pytest.raises(HostError) as refused:
        rights(pod, image_user)
    assert refused.value.error.startswith(said)
    assert refused.value.error.endswith('(pod: "web_shop(u1)", container: app)')


def test_who_is_not_root_may_run() -> None:
    by_pod = PodSecurityContext(run_as_user=1, run_as_non_root=True)
    by_image = PodSecurityContext(run_as_non_root=True)
    assert rights(a_pod(security_context=by_pod)).run_as_user.value == 1
    assert rights(a_pod(security_context=by_image), (5, "")).run_as_user.value == 5


def test_a_sandbox_has_the_pods_rights() -> None:
    privileged = Container(name="app", security_context={"privileged": True})
    of_pod = PodSecurityContext(
        run_as_user=1, run_as_group=2, sysctls=(Sysctl("kernel.msgmax", "1"),), se_linux_options={"user": "u"}
    )
    pod = a_pod(privileged, security_context=of_pod)
    security_context = sandbox_security(pod)
    assert (
        security_context.privileged,
        security_context.run_as_user.value,
        security_context.run_as_group.value,
    ) == (True, 1, 2)
    assert security_context.selinux_options.user == "u"
    sandbox = PodSandboxConfig(pod=pod, attempt=0, cgroup_parent="", log_directory="")
    assert dict(sandbox_config(sandbox, "").linux.sysctls) == {"kernel.msgmax": "1"}


NAMESPACES = [
    ({}, (cri.POD, cri.CONTAINER, cri.POD)),
    ({"host_network": True}, (cri.NODE, cri.CONTAINER, cri.POD)),
    ({"host_pid": True, "share_process_namespace": True}, (cri.POD, cri.NODE, cri.POD)),
    ({"share_process_namespace": True}, (cri.POD, cri.POD, cri.POD)),
    ({"host_ipc": True}, (cri.POD, cri.CONTAINER, cri.NODE)),
]


@pytest.mark.parametrize(("spec", "expected"), NAMESPACES)
def test_what_a_pod_shares_with_its_host(spec: dict[str, bool], expected: tuple[int, int, int]) -> None:
    namespace_option = namespaces(a_pod(**spec))
    assert (namespace_option.network, namespace_option.pid, namespace_option.ipc) == expected


@pytest.mark.parametrize(
    ("spec", "mode", "target"),
    [
        ({}, cri.TARGET, "id"),
        ({"host_pid": True}, cri.NODE, ""),
        ({"share_process_namespace": True}, cri.POD, ""),
    ],
)
def test_an_ephemeral_container_sees_the_processes_of_its_target(
    spec: dict[str, bool], mode: int, target: str
) -> None:
    pod = a_pod(**spec)
    options = container_security(
        pod, pod.spec.containers[0], (None, ""), "/seccomp", target_id="id"
    ).namespace_options
    assert (options.pid, options.target_id) == (mode, target)


def test_a_pod_with_user_namespaces_is_rejected() -> None:
    with pytest.raises(HostError, match="hostUsers: false"):
        namespaces(a_pod(host_users=False))
