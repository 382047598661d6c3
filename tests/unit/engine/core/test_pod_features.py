import pytest
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.pod_features import (
    SysctlAllowlist,
    app_armor_refusal,
    disabled_pod_level_resources,
    forbidden_sysctl,
    has_app_armor_profile,
    missing_features,
)
from nodewright.model.kubernetes.name_validation import dotted_sysctl, sysctl_namespace
from nodewright.model.kubernetes.objects import Pod, PodStatus
from nodewright.model.reasons.reason import (
    AppArmorNotEnabled,
    NodeFeaturesMissing,
    PodLevelResourcesDisabled,
    SysctlForbidden,
)


def a_pod(**spec: object) -> Pod:
    return decode({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}, Pod)


def setting(*sysctls: str, **spec: object) -> Pod:
    return a_pod(securityContext={"sysctls": [{"name": name, "value": "1"} for name in sysctls]}, **spec)


# sysctl, extra allowed patterns, what the pod shares with the host -> refused for
TABLE = """
    net.ipv4.tcp_syncookies       -               -            ->  -
    net/ipv4/tcp_syncookies       -               -            ->  -
    kernel.msgmax                 -               -            ->  kernel.msgmax:
    kernel.msgmax                 kernel.msg*     -            ->  -
    kernel.msgmax                 kernel.msgmax   hostIPC      ->  kernel.msgmax:IPC
    kernel.shm_rmid_forced        -               hostIPC      ->  kernel.shm_rmid_forced:IPC
    net.ipv4.tcp_syncookies       -               hostNetwork  ->  net.ipv4.tcp_syncookies:Net
    net.core.somaxconn            net.core.*      hostNetwork  ->  net.core.somaxconn:Net
    net.core.somaxconn            net.core.*      hostIPC      ->  -
    fs.mqueue.msg_max             fs.mqueue.*     -            ->  -
    vm.swappiness                 -               -            ->  vm.swappiness:
"""


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_a_sysctl_must_be_on_the_list_and_in_a_namespace_of_the_pods_own(line: str) -> None:
    sysctl, allowed, host, _, refused = line.split()
    pod = setting(sysctl, **({} if host == "-" else {host: True}))
    sysctl_forbidden = forbidden_sysctl(pod, SysctlAllowlist.of(() if allowed == "-" else (allowed,)))
    name, _, namespace = refused.partition(":")
    assert sysctl_forbidden == (
        None if refused == "-" else SysctlForbidden(sysctl=name, host_namespace=namespace)
    )


def test_the_first_forbidden_sysctl_is_the_one_named() -> None:
    sysctl_forbidden = forbidden_sysctl(setting("net.ipv4.tcp_rmem", "vm.a", "vm.b"), SysctlAllowlist.of())
    assert sysctl_forbidden == SysctlForbidden(sysctl="vm.a")


def test_patterns_without_a_namespace_are_kept_as_unknown() -> None:
    assert SysctlAllowlist.of(("vm.*", "net.*")).invalid_patterns == ("vm.",)


def test_a_pod_without_a_security_context_sets_nothing() -> None:
    assert forbidden_sysctl(a_pod(), SysctlAllowlist.of()) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a.b/c", "a.b/c"),
        ("a/b.c", "a.b/c"),
        ("plain", "plain"),
    ],
)
def test_the_first_separator_decides_the_form_of_a_sysctl(written: str, read: str) -> None:
    assert dotted_sysctl(written) == read


def test_namespaces_of_sysctls() -> None:
    assert [sysctl_namespace(name) for name in ("kernel.sem", "net.core.x", "vm.x")] == ["IPC", "Net", ""]


def annotated(profile: str) -> Pod:
    annotations = {"container.apparmor.security.beta.kubernetes.io/c": profile}
    pod = a_pod()
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


@pytest.mark.parametrize(
    ("pod", "is_needed"),
    [
        (a_pod(), False),
        (a_pod(securityContext={"appArmorProfile": {"type": "Unconfined"}}), False),
        (a_pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}), True),
        (
            a_pod(containers=[{"name": "c", "securityContext": {"appArmorProfile": {"type": "Localhost"}}}]),
            True,
        ),
        (annotated("unconfined"), False),
        (annotated("runtime/default"), True),
    ],
)
def test_a_pod_needs_app_armor_by_its_fields_or_annotations(pod: Pod, *, is_needed: bool) -> None:
    assert has_app_armor_profile(pod) is is_needed
    assert app_armor_refusal(pod, has_app_armor=None) is None
    assert app_armor_refusal(pod, has_app_armor=True) is None
    assert (app_armor_refusal(pod, has_app_armor=False) == AppArmorNotEnabled()) is is_needed
    ran_before = replace(pod, status=PodStatus(phase="Running"))
    assert app_armor_refusal(ran_before, has_app_armor=False) is None


def test_pod_level_resources_need_their_gate() -> None:
    pod = a_pod(resources={"limits": {"cpu": "1"}})
    assert disabled_pod_level_resources(pod, gate=False) == PodLevelResourcesDisabled()
    assert disabled_pod_level_resources(pod, gate=True) is None
    assert disabled_pod_level_resources(a_pod(), gate=False) is None


def test_features_that_the_node_does_not_declare_are_missing() -> None:
    greedy = a_pod(
        hostNetwork=True,
        hostUsers=False,
        initContainers=[{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}],
    )
    both = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
    assert missing_features(greedy, ()) == NodeFeaturesMissing(features=both)
    assert missing_features(greedy, both) is None
    assert missing_features(a_pod(hostNetwork=True), ()) is None
