"""Each exit of a kubelet's start that is called predicted is predicted, in the kubelet's words."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.features import rehearse

BROKEN = "cgroupDriver: systemd, systemReserved: {cpu: '1'}, systemReservedCgroup: "
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "failed to load kubelet config file, path: ...": ("maxPods: x", {}),
    "failed to merge global and in-flight": ("featureGates: {AllAlpha: true, NoSuchGate: true}", {}),
    "failed to construct kubelet dependencies: Cipher": ("tlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA, TLS_FOO]", {}),
    "failed to construct kubelet dependencies: unknown": ("tlsMinVersion: TLS13", {}),
    "protocol ... not supported": ("imageServiceEndpoint: 'npipe:////./pipe/containerd'", {}),
    "only support unix socket": ("containerRuntimeEndpoint: 'tcp://localhost:1'", {}),
    "reserved-cpus: ... is not a subset": ("reservedSystemCPUs: '99'", {}),
    "--kube-reserved value": ("kubeReserved: {x: '1'}", {}),
    "--system-reserved value": ("systemReserved: {cpu: '-1'}", {}),
    "--qos-reserved value": ("qosReserved: {memory: '5'}, featureGates: {QOSReserved: true}", {}),
    "topology manager policy options": (
        "featureGates: {TopologyManagerPolicyOptions: false}, topologyManagerPolicyOptions: {a: b}",
        {"kubernetes_version": "1.32"},
    ),
    "swap feature is enabled": ("failCgroupV1: false, failSwapOn: false, memorySwap: {swapBehavior: LimitedSwap}", {"cgroup_version": 1}),
    "running with swap on": ("{}", {"swap_bytes": 2**30}),
    "unknown policy": ("cpuManagerPolicy: x", {}),
    "[cpumanager] unable": ("cpuManagerPolicy: static", {}),
    "the total amount": ("memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {memory: 5Gi}}]", {}),
    "invalid sync frequency": ("syncFrequency: -1s", {}),
    "grace period must be": ("evictionSoft: {memory.available: 1Gi}", {}),
    "failed to initialize container log": ("containerLogMaxSize: 10Mb", {}),
    "the sysctls": ("allowedUnsafeSysctls: [kernel.foo]", {}),
    "sysctl ... must": ("allowedUnsafeSysctls: [A]", {}),
    "invalid Node Allocatable": ("kubeReserved: {memory: 1000Gi}", {}),
    "Failed to enforce ... Cgroup Limits on ...: ... cgroup": ("enforceNodeAllocatable: [pods, kube-reserved], kubeReservedCgroup: /runtime", {}),
    "Failed to enforce ... Cgroup Limits on ...: could": (f"{BROKEN}/system.slice/a.service, enforceNodeAllocatable: [pods, system-reserved]", {}),
    "system container": ("systemCgroups: /, cgroupRoot: /", {}),
}  # fmt: skip
ELSEWHERE = (
    "failed to load kubelet dropin",
    "unsupported on machines",
    "could not checkpoint",
    "start cpu",
    "start memory",
)
"""Exits that the tests of drop-ins, of the topology manager and of state files predict."""


PAGE = Path("docs/reference/kubelet-start.md").read_text()
ROWS = re.findall(r"^\| `.*?` \| `(.*)` \| (yes|not judged: .+) \|$", PAGE, re.MULTILINE)


def test_every_exit_is_predicted_or_not_judged() -> None:
    assert len(ROWS) == PAGE.count("\n| `")


@pytest.mark.parametrize("error", [error for error, judged in ROWS if judged == "yes"])
def test_a_predicted_exit_is_predicted(error: str, tmp_path: Path) -> None:
    if error.startswith(ELSEWHERE):
        return
    (case,) = (case for start, case in CASES.items() if error.startswith(start))
    fields, facts = case
    path = tmp_path / "kubelet.yaml"
    path.write_text(
        f"{{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, {fields.strip('{}') if fields == '{}' else fields}}}"
    )
    profile = find_profile("uma-4c")
    profile = msgspec.structs.replace(
        profile, spec=msgspec.structs.replace(profile.spec, kubelet_configuration={}, **facts)
    )
    errors = [failure.error for failure in rehearse(profile, kubelet_config=path).outcome.errors]
    words = [re.escape(word) for word in error.removesuffix("...").split("...") if word.strip()]
    if error.startswith("failed to load kubelet config file"):
        words = ["failed to decode"]
    assert any(re.search(".*".join(words), text) for text in errors), errors


@pytest.mark.parametrize(
    "fields",
    [
        "enforceNodeAllocatable: [pods, kube-reserved], kubeReserved: {cpu: '1'}, kubeReservedCgroup: /runtime, cgroupDriver: systemd",
        "enforceNodeAllocatable: [pods, kube-reserved], kubeReserved: {cpu: '1'}, kubeReservedCgroup: /a.slice/b.service",
        "enforceNodeAllocatable: [pods, kube-reserved], kubeReserved: {cpu: '1'}, kubeReservedCgroup: /a.slice/a-b.slice, cgroupDriver: systemd",
        "systemReservedCgroup: /system.slice",
        "tlsMinVersion: VersionTLS10, tlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305, TLS_AES_128_GCM_SHA256]",
        "containerRuntimeEndpoint: /run/crio/crio.sock, podLogsDir: logs",
        "allowedUnsafeSysctls: [kernel.msg*, net/core/somaxconn]",
    ],
)  # fmt: skip
def test_other_cgroups_and_sysctls_let_the_kubelet_start(fields: str, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(f"{{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, {fields}}}")
    assert rehearse("uma-4c", kubelet_config=path).outcome.starts
