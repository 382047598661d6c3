"""Settings of Windows and of the host: what a real API server answers."""

from typing import Any

import pytest
from tests.unit.engine.admission.validation.test_pod_spec import MAIN, violations_of

USER = "securityContext.windowsOptions.runAsUserName Invalid value"
DOMAIN = "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
USERS = [
    ("Administrator", ""),
    ("Some User", ""),
    ("EXAMPLE\\user", ""),
    ("corp.example.com\\user", ""),
    ("", "runAsUserName cannot be an empty string"),
    ("a\tb", "runAsUserName cannot contain control characters"),
    ("a\\b\\c", "runAsUserName cannot contain more than one backslash"),
    ("\\user", DOMAIN),
    ("over fifteen letters\\user", DOMAIN),
    (f"{'a.' * 128}a\\user", "runAsUserName's Domain length must be under 256 characters"),
    ("EXAMPLE\\", "runAsUserName's User cannot be empty"),
    ("u" * 105, "runAsUserName's User length must not be longer than 104 characters"),
    (". .", "runAsUserName's User cannot contain only periods or spaces"),
    ("a/b", "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"),
]


@pytest.mark.parametrize(("name", "rule"), USERS)
def test_user_names_are_those_of_windows(name: str, rule: str) -> None:
    texts = violations_of({"securityContext": {"windowsOptions": {"runAsUserName": name}}})
    assert texts == ([f"{USER} {name}: {rule}"] if rule else [])


def test_account_specifications_are_named_and_small() -> None:
    def rules(**options: Any) -> list[str]:
        texts = violations_of({"containers": [{**MAIN, "securityContext": {"windowsOptions": options}}]})
        return [text.removeprefix("containers[0].securityContext.windowsOptions.")[:64] for text in texts]

    assert rules(gmsaCredentialSpecName="web.example.com", gmsaCredentialSpec="a") == []
    assert rules(gmsaCredentialSpecName="_") == [
        "gmsaCredentialSpecName Invalid value _: a lowercase RFC 1123 subd"[:64]
    ]
    assert rules(gmsaCredentialSpec="") == [
        "gmsaCredentialSpec Invalid value : gmsaCredentialSpec cannot be an empty"[:64]
    ]
    assert rules(gmsaCredentialSpec="a" * 65_537) == [f"gmsaCredentialSpec Invalid value {'a' * 31}"]


NOT = "cannot be set for a windows pod"
OF_POD = {
    "appArmorProfile": {"type": "Unconfined"}, "seLinuxOptions": {}, "seccompProfile": {"type": "Unconfined"},
    "fsGroup": 0, "fsGroupChangePolicy": "Always", "sysctls": [{"name": "a"}], "runAsUser": 0, "runAsGroup": 0,
    "supplementalGroups": [0], "supplementalGroupsPolicy": "Merge", "seLinuxChangePolicy": "Recursive",
}  # fmt: skip
OF_CONTAINER = {
    "appArmorProfile": {"type": "Unconfined"}, "seLinuxOptions": {}, "seccompProfile": {"type": "Unconfined"},
    "capabilities": {}, "readOnlyRootFilesystem": False, "privileged": False, "allowPrivilegeEscalation": True,
    "procMount": "Default", "runAsUser": 0, "runAsGroup": 0,
}  # fmt: skip


@pytest.mark.parametrize("field", OF_POD)
def test_windows_pods_have_no_settings_of_linux(field: str) -> None:
    spec = {"os": {"name": "windows"}, "securityContext": {field: OF_POD[field]}}
    assert violations_of(spec) == [f"securityContext.{field} Forbidden: {NOT}"]


@pytest.mark.parametrize("field", OF_CONTAINER)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_windows_containers_have_no_settings_of_linux(kind: str, field: str) -> None:
    container = {"name": "other", "securityContext": {field: OF_CONTAINER[field]}}
    assert violations_of({"os": {"name": "windows"}, kind: [container]}) == [
        f"{kind}[0].securityContext.{field} Forbidden: {NOT}"
    ]


def test_linux_pods_have_no_settings_of_windows() -> None:
    context: dict[str, Any] = {"windowsOptions": {}}
    spec = {
        "os": {"name": "linux"},
        "securityContext": context,
        "containers": [{**MAIN, "securityContext": context}],
    }
    rule = "Forbidden: windows options cannot be set for a linux pod"
    assert violations_of(spec) == [
        f"securityContext.windowsOptions {rule}",
        f"containers[0].securityContext.windowsOptions {rule}",
    ]


def in_host(*, pod: bool | None, container: bool | None, network: bool = True) -> list[str]:
    def context(value: bool | None) -> dict[str, Any]:
        return {} if value is None else {"securityContext": {"windowsOptions": {"hostProcess": value}}}

    containers = [{**MAIN, **context(container)}, {"name": "more"}]
    return violations_of({"hostNetwork": network, "containers": containers, **context(pod)})


def test_processes_of_the_host_are_all_containers_or_none() -> None:
    some = "spec Invalid value : If pod contains any hostProcess containers then all containers must be HostProcess containers"
    other = "containers[0].securityContext.windowsOptions.hostProcess Invalid value False: pod hostProcess value must be"
    assert in_host(pod=True, container=None) == []
    assert in_host(pod=None, container=None) == []
    assert in_host(pod=None, container=True) == [some]
    assert in_host(pod=True, container=False) == [f"{other} identical if both are specified, was true", some]
    assert in_host(pod=True, container=True, network=False) == [
        "hostNetwork Invalid value False: hostNetwork must be true if pod contains any hostProcess containers"
    ]


SHARED = "may not be specified when"
SETTINGS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"hostNetwork": True, "hostIPC": True}, {"sysctls": [{"name": "kernel.x"}]}, []),
    ({"hostNetwork": True}, {"sysctls": [{"name": "kernel.shmmax"}]}, []),
    ({"hostNetwork": True}, {"sysctls": [{"name": "net/ipv4/conf/eth0.1/x"}]},
     [f"securityContext.sysctls[0].name Invalid value net/ipv4/conf/eth0.1/x: {SHARED} 'hostNetwork' is true"]),
    ({"hostIPC": True}, {"sysctls": [{"name": "fs.mqueue.a"}, {"name": "kernel.sem"}]},
     [f"securityContext.sysctls[0].name Invalid value fs.mqueue.a: {SHARED} 'hostIPC' is true",
      f"securityContext.sysctls[1].name Invalid value kernel.sem: {SHARED} 'hostIPC' is true"]),
    ({}, {"seLinuxChangePolicy": "Recursive"}, []),
    ({}, {"seLinuxChangePolicy": "MountOption"},
     ['securityContext.seLinuxChangePolicy Unsupported value MountOption: supported values: "Recursive"']),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "context", "wanted"), SETTINGS)
def test_settings_of_the_kernel_are_judged_as_the_api_server_does(
    spec: dict[str, Any], context: dict[str, Any], wanted: list[str]
) -> None:
    assert violations_of({**spec, "securityContext": context}) == wanted


MASK = "containers[0].securityContext.procMount"
HOST_USERS = "Invalid value Unmasked: `hostUsers` must be false to use `Unmasked`"


@pytest.mark.parametrize(
    ("mount", "users", "wanted"),
    [
        ("Default", None, []),
        ("Unmasked", False, []),
        ("Unmasked", None, [f"{MASK} {HOST_USERS}"]),
        ("Unmasked", True, [f"{MASK} {HOST_USERS}"]),
        ("", False, [f'{MASK} Unsupported value : supported values: "Default", "Unmasked"']),
    ],
)
def test_proc_is_unmasked_only_for_users_of_their_own(
    mount: str, users: bool | None, wanted: list[str]
) -> None:
    container = {**MAIN, "securityContext": {"procMount": mount}}
    assert violations_of({"hostUsers": users, "containers": [container]}) == wanted


def sleeping(seconds: int, **spec: Any) -> list[str]:
    hook = {"preStop": {"sleep": {"seconds": seconds}}}
    return violations_of({"containers": [{**MAIN, "lifecycle": hook}], **spec})


def test_hooks_sleep_no_longer_than_the_pod_has_to_end() -> None:
    def refusal(seconds: int, most: int) -> list[str]:
        rule = f"must be non-negative and less than terminationGracePeriodSeconds ({most})"
        return [f"containers[0].lifecycle.preStop.sleep Invalid value {seconds}: {rule}"]

    assert sleeping(0) == sleeping(30) == sleeping(5, terminationGracePeriodSeconds=5) == []
    assert sleeping(31) == refusal(31, 30)
    assert sleeping(-1, terminationGracePeriodSeconds=5) == refusal(-1, 5)
    # A negative period is stored as one second.
    assert sleeping(2, terminationGracePeriodSeconds=-5) == refusal(2, 1)


def test_a_security_context_is_printed_with_all_fields_of_the_api_servers_type() -> None:
    context = {
        "capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": False,
        "seLinuxOptions": {"level": "s0"}, "windowsOptions": {"gmsaCredentialSpec": "a"},
    }  # fmt: skip
    (text,) = violations_of({"containers": [{**MAIN, "securityContext": context}]})
    shown = {
        "Capabilities": {"Add": ["CAP_SYS_ADMIN"], "Drop": None}, "Privileged": None,
        "SELinuxOptions": {"User": "", "Role": "", "Type": "", "Level": "s0"},
        "WindowsOptions": {
            "GMSACredentialSpecName": None, "GMSACredentialSpec": "a", "RunAsUserName": None, "HostProcess": None,
        },
        "RunAsUser": None, "RunAsGroup": None, "RunAsNonRoot": None, "ReadOnlyRootFilesystem": None,
        "AllowPrivilegeEscalation": False, "ProcMount": None, "SeccompProfile": None, "AppArmorProfile": None,
    }  # fmt: skip
    rule = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
    assert text == f"containers[0].securityContext Invalid value {shown}: {rule}"
