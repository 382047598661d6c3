"""Findings: what counts as lost, what explains it, and what is left out."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tests.support.claims import a_class, a_slice
from tests.support.small_nodes import a_numa_pod, a_small_profile

from nodewright.cli.app import run
from nodewright.documents.formats.manifests import workloads_from
from nodewright.documents.formats.workloads import Workload
from nodewright.documents.profiles.node_profiles import with_release
from nodewright.model.kubernetes.claims import Device, DeviceTaint
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.upgrade.release_facts import Area, Aspect
from nodewright.predict.upgrade.upgrade_input import profile_case
from nodewright.predict.upgrade.upgrade_report import (
    Difference,
    NodesUpgraded,
    UpgradeImpact,
    compared_releases,
    upgrade_report,
    upgrade_text,
)


def compared(profile: NodeProfile, start: str, end: str, flags: tuple[str, ...] = ()) -> NodesUpgraded:
    case = profile_case(with_release(profile, start), "case")
    return compared_releases(replace(case, flags=flags), RELEASE_TABLES[start], RELEASE_TABLES[end])


def with_pods(profile: NodeProfile, *pods: Any) -> NodeProfile:
    return replace(profile, spec=replace(profile.spec, pods=pods))


def losses(comparison: NodesUpgraded) -> list[tuple[str, str, str]]:
    return [
        (str(finding.area), difference.pod or "", difference.detail or "")
        for finding in comparison.findings
        if finding.severity is UpgradeImpact.LOST
        for difference in finding.values
    ]


def test_a_gate_that_the_release_does_not_have_keeps_the_kubelet_from_starting() -> None:
    comparison = compared(a_small_profile(featureGates={"MemoryManager": True}), "1.35", "1.36")
    (finding,) = [finding for finding in comparison.findings if finding.severity is UpgradeImpact.LOST]
    assert finding.causes[0].since == "1.36"
    assert finding.causes[0].remedy == "remove `featureGates.MemoryManager`"
    assert "unrecognized feature gate: MemoryManager" in finding.values[0].after
    assert comparison.without_refused_settings
    assert comparison.pods_compared


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"featureGates": {"Nonsense": True}}, "unrecognized feature gate: Nonsense"),
        ({"topologyManagerPolicy": "nonsense"}, 'must be one of: ["none"'),
    ],
)
def test_a_kubelet_that_starts_under_neither_release_is_no_upgrade_without_a_change(
    changes: dict[str, Any], error: str
) -> None:
    comparison = compared(a_small_profile(**changes), "1.34", "1.36")
    assert comparison.outcome == "neverStarts"
    assert comparison.loses
    (shared,) = comparison.start_errors
    assert error in shared
    headline, why, *_ = upgrade_text(upgrade_report([comparison])).splitlines()
    assert "the kubelet starts under neither release" in headline
    assert why == f"  the kubelet does not start before or after: {shared}"


def test_a_kubelet_that_starts_under_the_old_release_alone_is_lost_for_that() -> None:
    changes: dict[str, Any] = {"featureGates": {"Nonsense": True, "MemoryManager": True}}
    comparison = compared(a_small_profile(**changes), "1.35", "1.36")
    assert comparison.outcome == "lost"
    assert len(comparison.start_errors) == 1


def test_a_gate_that_is_locked_otherwise_keeps_the_kubelet_from_starting() -> None:
    comparison = compared(a_small_profile(featureGates={"NodeSwap": False}), "1.33", "1.34")
    (finding,) = [finding for finding in comparison.findings if finding.severity is UpgradeImpact.LOST]
    assert "feature is locked to true" in finding.values[0].after
    assert finding.causes[0].rule == "feature gate NodeSwap: BETA, on in 1.32; GA, locked to on since 1.34"


def test_a_kubelet_on_cgroup_v1_does_not_start_from_1_35_on() -> None:
    profile = a_small_profile()
    profile = replace(profile, spec=replace(profile.spec, cgroup_version=1))
    assert losses(compared(profile, "1.34", "1.35")) == [("start", "", "failCgroupV1")]
    allowed = a_small_profile(failCgroupV1=False)
    allowed = replace(allowed, spec=replace(allowed.spec, cgroup_version=1))
    assert losses(compared(allowed, "1.34", "1.36")) == []


def test_a_flag_that_was_removed_keeps_the_kubelet_from_starting() -> None:
    flags = ("pod-infra-container-image", "node-ip")
    comparison = compared(a_small_profile(), "1.34", "1.35", flags)
    assert losses(comparison) == [("start", "", "--pod-infra-container-image")]
    assert losses(compared(a_small_profile(), "1.33", "1.34", flags)) == []
    (cause,) = comparison.findings[0].causes
    assert (cause.since, cause.reference) == ("1.35", "PR 133779")


def test_an_option_that_an_older_release_has_as_alpha_keeps_its_kubelet_from_starting() -> None:
    profile = a_small_profile(
        cpuManagerPolicy="static", cpuManagerPolicyOptions={"strict-cpu-reservation": "true"}
    )
    comparison = compared(profile, "1.33", "1.32")
    assert losses(comparison) == [("start", "", "managers")]
    assert not comparison.pods_compared
    assert comparison.findings[0].causes[0].reference == "PR 130535, PR 130290"


def test_a_custom_quota_period_takes_effect_in_1_36_and_is_refused_before() -> None:
    profile = with_pods(
        a_small_profile(cpuCFSQuotaPeriod="50ms"), a_numa_pod("web", {"cpu": 500, "memory": 8})
    )
    comparison = compared(profile, "1.36", "1.35")
    assert losses(comparison) == [("start", "", "cpuCFSQuotaPeriod")]
    changed = [finding for finding in comparison.findings if finding.aspect is Aspect.CGROUP_FILE]
    assert changed[0].causes[0].remedy == "remove `cpuCFSQuotaPeriod` first"


def test_exclusive_cpus_switch_off_the_quota_from_1_33_on() -> None:
    profile = with_pods(
        a_small_profile(cpuManagerPolicy="static"), a_numa_pod("web", {"cpu": 2000, "memory": 8})
    )
    comparison = compared(profile, "1.32", "1.33")
    (finding,) = [finding for finding in comparison.findings if finding.aspect is Aspect.CGROUP_FILE]
    assert finding.causes[0].reference == "PR 127525"
    assert {difference.detail: difference.after for difference in finding.values} == {
        "c0 cpu.max": "max 100000",
        "pod cpu.max": "max 100000",
    }


def test_state_files_with_entries_of_the_pod_level_are_no_way_back() -> None:
    pod = a_numa_pod("web", {"cpu": 2000, "memory": 8}, resources={"limits": {"cpu": "2", "memory": "8Mi"}})
    profile = a_small_profile(
        cpuManagerPolicy="static",
        topologyManagerScope="pod",
        topologyManagerPolicy="best-effort",
        featureGates={"PodLevelResourceManagers": True},
    )
    comparison = compared(with_pods(profile, pod), "1.36", "1.35")
    assert ("state files", "", "cpu_manager_state") in losses(comparison)
    causes = {
        cause.since
        for finding in comparison.findings
        for cause in finding.causes
        if finding.aspect is Aspect.STATE_FILE
    }
    assert causes == {"1.36"}


@pytest.mark.parametrize(
    ("aspect", "before", "after", "severity"),
    [
        (Aspect.VERDICT, "runs on", "lost: OutOfcpu", UpgradeImpact.LOST),
        (Aspect.VERDICT, "lost: OutOfcpu", "lost: OutOfmemory", UpgradeImpact.CHANGED),
        (Aspect.VERDICT, "refused: OutOfcpu", "admitted", UpgradeImpact.CHANGED),
        (Aspect.CPUS, "2-3", "-", UpgradeImpact.LOST),
        (Aspect.CPUS, "2-3", "4-5", UpgradeImpact.CHANGED),
        (Aspect.CPUS, "-", "4-5", UpgradeImpact.CHANGED),
        (Aspect.STATE_FILE, "readable", "refused", UpgradeImpact.LOST),
        (Aspect.START_ERROR, "-", "error", UpgradeImpact.LOST),
        (Aspect.START_ERROR, "error", "-", UpgradeImpact.CHANGED),
        (Aspect.SETTING, "false", "true", UpgradeImpact.NOTE),
        (Aspect.CGROUP_FILE, "1", "2", UpgradeImpact.CHANGED),
    ],
)
def test_only_what_is_taken_away_is_lost(
    aspect: Aspect, before: str, after: str, severity: UpgradeImpact
) -> None:
    assert Difference(Area.PODS, "default/web", aspect, "", before, after).severity is severity


def test_what_is_lost_on_the_way_back_is_not_lost_by_the_upgrade() -> None:
    difference = Difference(Area.WAY_BACK, "", Aspect.STATE_FILE, "cpu_manager_state", "readable", "refused")
    assert difference.severity is UpgradeImpact.WAY_BACK


def test_a_setting_for_the_new_kubelet_only_may_leave_no_way_back() -> None:
    pod = a_numa_pod("web", {"cpu": 2000, "memory": 8}, resources={"limits": {"cpu": "2", "memory": "8Mi"}})
    profile = a_small_profile(
        cpuManagerPolicy="static",
        topologyManagerScope="pod",
        topologyManagerPolicy="best-effort",
        featureGates={"PodLevelResourceManagers": True},
    )
    comparison = compared(with_pods(profile, pod), "1.35", "1.36")
    back = [finding for finding in comparison.findings if finding.severity is UpgradeImpact.WAY_BACK]
    assert not comparison.loses
    assert {value.detail for finding in back for value in finding.values} >= {
        "cpu_manager_state",
        "featureGates[PodLevelResourceManagers]",
    }
    causes = {cause.reference for finding in back for cause in finding.causes}
    assert causes == {UNSET, "KEP-5526, PR 134768"}


def test_a_gate_that_only_the_new_kubelet_has_is_to_be_set_with_it() -> None:
    comparison = compared(a_small_profile(featureGates={"PodLevelResourceManagers": True}), "1.35", "1.36")
    start = next(finding for finding in comparison.findings if finding.severity is UpgradeImpact.CHANGED)
    assert (
        start.causes[0].remedy == "set `featureGates.PodLevelResourceManagers` with this release, not before"
    )


def test_the_decision_with_a_change_alone_explains_no_value_of_a_pod_that_it_refuses() -> None:
    level = {"requests": {"cpu": "2", "memory": "8Mi"}, "limits": {"cpu": "2", "memory": "8Mi"}}
    profile = a_small_profile(cpuManagerPolicy="static")
    case = profile_case(with_release(profile, "1.33"), "case")
    pod = a_numa_pod("web", {"cpu": 2000, "memory": 8}, resources=level)
    coming = Workload(
        source="", api_version="v1", kind="Pod", name="web", namespace="default", replicas=None, pod=pod
    )
    comparison = compared_releases(
        replace(case, manifests=[coming]), RELEASE_TABLES["1.33"], RELEASE_TABLES["1.36"]
    )
    (finding,) = [finding for finding in comparison.findings if finding.aspect is Aspect.CPUS]
    assert [cause.reference for cause in finding.causes] == ["KEP-2837, PR 132999, PR 133279"]


def test_gates_that_are_no_mapping_are_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "configuration.yaml"
    path.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: [{}]\n", "utf-8"
    )
    assert run(["upgrade", "--node", "vm-4", "--kubelet-config", str(path), "--from", "1.33"]) in (0, 1, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("start", "end", "severity"),
    [("1.37", "1.36", UpgradeImpact.LOST), ("1.36", "1.37", UpgradeImpact.WAY_BACK)],
)
def test_what_a_pod_holds_as_a_whole_is_lost_on_the_way_from_1_37_to_1_36(
    start: str, end: str, severity: UpgradeImpact
) -> None:
    pod = a_numa_pod("web", {"cpu": 2000, "memory": 8}, resources={"limits": {"cpu": "2", "memory": "8Mi"}})
    profile = a_small_profile(
        cpuManagerPolicy="static",
        topologyManagerScope="pod",
        topologyManagerPolicy="best-effort",
        featureGates={"PodLevelResourceManagers": True},
    )
    comparison = compared(with_pods(profile, pod), start, end)
    (finding,) = [each for each in comparison.findings if each.aspect is Aspect.STATE_FILE]
    (value,) = finding.values
    assert (finding.severity, value.detail) == (severity, "cpu_manager_state")
    assert (value.before, value.after) == ("readable", "lost: the pod level of 1 pod")
    assert [cause.since for cause in finding.causes] == ["1.37"]


@pytest.mark.parametrize(("start", "end"), [("1.36", "1.37"), ("1.37", "1.36"), ("1.32", "1.37")])
def test_state_files_without_the_pod_level_are_read_both_ways(start: str, end: str) -> None:
    pod = a_numa_pod("web", {"cpu": 2000, "memory": 8})
    profile = a_small_profile(cpuManagerPolicy="static", memoryManagerPolicy="Static")
    comparison = compared(with_pods(profile, pod), start, end)
    kinds = {finding.aspect for finding in comparison.findings}
    assert not kinds & {Aspect.STATE_FILE, Aspect.CPUS, Aspect.MEMORY, Aspect.VERDICT}
    assert comparison.compared["state files"] == 3


def test_what_to_do_for_several_changes_names_the_release_of_each() -> None:
    comparison = compared(a_small_profile(featureGates={"MemoryManager": True}), "1.35", "1.36")
    (finding,) = [finding for finding in comparison.findings if finding.severity is UpgradeImpact.LOST]
    (cause,) = finding.causes
    later = replace(cause, since="1.37", remedy="look at the pods")
    nothing = replace(cause, remedy="nothing; the value is the new kubelet's")
    texts = {}
    for name, causes in {
        "one": (cause,),
        "none": (nothing,),
        "one that needs something": (nothing, cause),
        "two": (later, nothing, cause),
    }.items():
        changed = replace(comparison, findings=(replace(finding, causes=causes),))
        lines = upgrade_text(upgrade_report([changed])).splitlines()
        texts[name] = [line for line in lines if line.startswith(("  do", "    1."))]
    only = ["  do: remove `featureGates.MemoryManager`"]
    assert texts == {
        "one": only,
        "none": ["  do: nothing; the value is the new kubelet's"],
        "one that needs something": only,
        "two": ["  do, for the change in:", f"    1.36: {cause.remedy}", "    1.37: look at the pods"],
    }


CLAIMED = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i}]
  resourceClaims: [{name: c, resourceClaimName: c}]
"""


@pytest.mark.parametrize(
    ("start", "end", "device", "slices", "values"),
    [
        # Slices that are missing: 1.34 allocates devices of the pool, later releases do not.
        ("1.34", "1.36", Device(name="d"), 2, ["d", "refused"]),
        ("1.35", "1.36", Device(name="d"), 2, []),
        # Taints count since 1.36.
        (
            "1.35",
            "1.36",
            Device(name="d", taints=(DeviceTaint("broken", "", "NoSchedule"),)),
            1,
            ["d", "refused"],
        ),
        ("1.34", "1.36", Device(name="d"), 1, []),
    ],
)
def test_the_devices_of_claims_are_compared(
    start: str, end: str, device: Device, slices: int, values: list[str]
) -> None:
    profile = with_release(a_small_profile(), start)
    loaded = workloads_from(CLAIMED.encode(), "p.yaml")
    assert loaded.claims is not None
    case = profile_case(profile, "case")
    name = case.profile.metadata.name
    pieces = (a_slice([device], pool="p", count=slices, node_name=name),)
    claims = replace(loaded.claims, slices=pieces, classes=(a_class(),), is_whole=True)
    case = replace(case, manifests=loaded.workloads, claims=claims)
    found = [
        finding
        for finding in compared_releases(case, RELEASE_TABLES[start], RELEASE_TABLES[end]).findings
        if finding.area == Area.MANIFESTS and finding.severity is UpgradeImpact.LOST
    ]
    assert [each.values[0].after.split(" by ")[0] for each in found] == values[1:]
    assert all(each.causes for each in found)
