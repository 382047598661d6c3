"""The security context of containers, also of those that run as plain processes."""

from typing import Any

import pytest

from nodewright.agent.rules.container_security import (
    CAPABILITIES,
    container_privileges,
    effective_setting,
    run_as_non_root_violation,
    unsupported_settings,
)
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.testing.objects import a_pod

WHERE = '(pod: "web_default(web)", container: main)'
NOT_ROOT = """
    pod runAsNonRoot                       user 0     -> container has runAsNonRoot and image will run as root
    pod runAsNonRoot                       user 5     ->
    pod runAsNonRoot runAsUser=0           user 5     -> container's runAsUser breaks non-root policy
    pod runAsNonRoot runAsUser=7           user 0     ->
    pod runAsNonRoot own runAsUser=0       user 5     -> container's runAsUser breaks non-root policy
    pod runAsNonRoot own allowed           user 0     ->
    own runAsNonRoot pod runAsUser=7       user 0     ->
    pod runAsUser=0                        user 0     ->
"""


def contexts(words: list[str]) -> tuple[Pod, Container]:
    document: dict[str, dict[str, Any]] = {"pod": {}, "own": {}}
    where = document["pod"]
    for word in words:
        name, _, value = word.partition("=")
        if name in document:
            where = document[name]
        elif name == "allowed":
            where["runAsNonRoot"] = False
        else:
            where[name] = int(value) if value else True
    return a_pod("web", securityContext=document["pod"]), Container(
        name="main", security_context=document["own"]
    )


@pytest.mark.parametrize("line", NOT_ROOT.strip().splitlines())
def test_run_as_non_root_is_enforced(line: str) -> None:
    told, _, wanted = line.partition("->")
    words, _, user = told.partition("user ")
    pod, container = contexts(words.split())
    text = run_as_non_root_violation(pod, container, (int(user), ""))
    assert text == (f"{wanted.strip()} {WHERE}" if wanted.strip() else "")


def test_a_containers_security_context_overrides_its_pods() -> None:
    pod = a_pod(securityContext={"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}})
    own = Container(name="main", security_context={"runAsUser": 2, "privileged": True})
    assert effective_setting(pod, own, "runAsUser") == 2
    assert effective_setting(pod, own, "seccompProfile") == {"type": "RuntimeDefault"}
    assert effective_setting(pod, own, "privileged") is True
    assert effective_setting(pod, own, "procMount") is None


POWERS = """
    -                                            -> all
    add=NET_ADMIN                                -> all
    drop=ALL                                     -> none
    drop=ALL add=NET_BIND_SERVICE                -> NET_BIND_SERVICE
    drop=ALL add=CAP_KILL add=chown              -> CHOWN KILL
    drop=ALL privileged                          -> all
    drop=NET_RAW                                 -> all but NET_RAW
    drop=NET_RAW add=ALL                         -> everything
"""


@pytest.mark.parametrize("line", POWERS.strip().splitlines())
def test_a_process_keeps_what_is_not_dropped(line: str) -> None:
    told, _, wanted = line.partition(" -> ")
    names: dict[str, list[str]] = {"add": [], "drop": []}
    for kind, name in (word.split("=") for word in told.split() if "=" in word):
        names[kind].append(name)
    capabilities = container_privileges(
        Container(security_context={"capabilities": names, "privileged": "privileged" in told})
    ).capabilities
    every = set(CAPABILITIES)
    kept = None if capabilities is None else {CAPABILITIES[number] for number in capabilities}
    assert kept == {
        "all": None,
        "none": set(),
        "everything": every,
        "all but NET_RAW": every - {"NET_RAW"},
    }.get(wanted.strip(), set(wanted.split()))


def test_capabilities_have_the_kernels_numbers() -> None:
    assert [CAPABILITIES.index(name) for name in ("CHOWN", "NET_RAW", "SYS_ADMIN", "CHECKPOINT_RESTORE")] == [
        0,
        13,
        21,
        40,
    ]


def test_no_new_privs_is_set_without_privilege_escalation() -> None:
    assert container_privileges(Container(security_context={"allowPrivilegeEscalation": False})).no_new_privs
    assert not container_privileges(
        Container(security_context={"allowPrivilegeEscalation": True})
    ).no_new_privs
    assert not container_privileges(Container()).no_new_privs


IMPOSSIBLE = [
    ({}, {"readOnlyRootFilesystem": True}, "readOnlyRootFilesystem"),
    ({}, {"seccompProfile": {"type": "RuntimeDefault"}}, "seccompProfile RuntimeDefault"),
    ({"securityContext": {"seccompProfile": {"type": "Localhost"}}}, {}, "seccompProfile Localhost"),
    ({}, {"appArmorProfile": {"type": "RuntimeDefault"}}, "appArmorProfile RuntimeDefault"),
    ({}, {"seLinuxOptions": {"level": "s0"}}, "seLinuxOptions"),
    ({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}, {}, "sysctls"),
    ({"hostUsers": False}, {}, "hostUsers false"),
    ({}, {"capabilities": {"drop": ["FLY"]}}, "capabilities"),
]


@pytest.mark.parametrize(("spec", "own", "begins"), IMPOSSIBLE)
def test_settings_that_a_process_ignores_are_reported(
    spec: dict[str, Any], own: dict[str, Any], begins: str
) -> None:
    (unsupported_setting,) = unsupported_settings(a_pod(**spec), Container(security_context=own))
    assert unsupported_setting.partition(":")[0] == begins


def test_settings_without_effect_on_a_process_are_accepted() -> None:
    own = {
        "privileged": True,
        "procMount": "Unmasked",
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
        "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"], "add": ["CAP_NET_ADMIN"]},
        "runAsUser": 5,
    }
    assert list(unsupported_settings(a_pod(hostUsers=True), Container(security_context=own))) == []
