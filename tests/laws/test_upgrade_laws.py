"""Laws of the comparison of two releases on a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.costly_laws import COSTLY
from tests.support.small_nodes import guaranteed_pods, profiles

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.profiles.node_profiles import with_release
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_changes import changes_between, with_change
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.node import Node
from nodewright.predict.upgrade.release_facts import (
    Area,
    Aspect,
    FactName,
    FactOwner,
    ReleaseFacts,
    UpgradeCase,
    decide,
)
from nodewright.predict.upgrade.upgrade_input import profile_case
from nodewright.predict.upgrade.upgrade_report import (
    Difference,
    changes_that_make,
    compared_releases,
    differences_of,
)
from nodewright.testing.objects import sidecar

TABLES = st.sampled_from(list(RELEASE_TABLES.values()))


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    """Pods with pod-level resources, a sidecar, both or neither."""
    pod = draw(guaranteed_pods(name))
    spec = pod.spec
    if draw(st.booleans()):
        spec = replace(spec, resources=spec.containers[0].resources)
    if draw(st.booleans()):
        spec = replace(spec, init_containers=(*spec.init_containers, sidecar("side", "cpu=100m memory=1Mi")))
    return replace(pod, spec=spec)


@st.composite
def cases(draw: st.DrawFn) -> UpgradeCase:
    """Small nodes with pods that run and pods to come."""
    profile: NodeProfile = draw(profiles())
    start = draw(TABLES)
    gates = draw(st.sampled_from(({}, {"MemoryQoS": True}, {"CPUManagerPolicyAlphaOptions": True})))
    configuration = {**profile.spec.kubelet_configuration, "featureGates": gates}
    if start.name == "1.32":
        configuration["cpuManagerPolicyOptions"] = {}
    profile = replace(profile, spec=replace(profile.spec, kubelet_configuration=configuration))
    node = Node.from_profile(with_release(profile, start.name))
    held = [pod for pod in (draw(pods(name)) for name in "ab") if node.admit(pod).admitted]
    running = tuple(held[:1])
    profile = replace(profile, spec=replace(profile.spec, pods=running))
    coming = [
        Workload(
            source="", api_version="v1", kind="Pod", name=name, namespace="default", replicas=None, pod=pod
        )
        for name, pod in ((name, draw(pods(name))) for name in "cd")
    ]
    return replace(profile_case(with_release(profile, start.name), "case"), manifests=coming)


def value_of(difference: Difference, facts: ReleaseFacts) -> str:
    """The value in other decisions; `-` also where the owner has no facts any more."""
    return fact_value(facts, difference.area, difference.aspect, difference.subject, difference.detail)


def fact_value(facts: ReleaseFacts, area: Area, aspect: Aspect, subject: str, detail: str) -> str:
    owner = facts.get(FactOwner(area, subject, is_outcome=aspect is Aspect.VERDICT), {})
    return owner.get(FactName(aspect, detail), "-")


@given(cases(), TABLES)
def test_the_same_release_changes_nothing(case: UpgradeCase, table: ReleaseTable) -> None:
    comparison = compared_releases(case, table, table)
    assert comparison.findings == ()
    assert comparison.loses == (comparison.outcome == "neverStarts")
    assert comparison.compared[Area.START]


@COSTLY
@given(cases(), TABLES, TABLES)
def test_each_reported_value_is_what_the_releases_decide(
    case: UpgradeCase, start: ReleaseTable, end: ReleaseTable
) -> None:
    facts = decide(case, start).facts, decide(case, end).facts
    for finding in compared_releases(case, start, end).findings:
        for changed in finding.values:
            assert changed.before != changed.after
            if finding.area is Area.WAY_BACK:
                continue
            name = (finding.area, finding.aspect, changed.pod or "", changed.detail or "")
            values = tuple(fact_value(decided, *name) for decided in facts)
            assert values == (changed.before, changed.after)


@pytest.mark.slow
@COSTLY
@given(cases(), TABLES, TABLES)
def test_an_upgrade_and_its_downgrade_change_the_same_values(
    case: UpgradeCase, start: ReleaseTable, end: ReleaseTable
) -> None:
    def changed(comparison_start: ReleaseTable, comparison_end: ReleaseTable) -> set[tuple[str, ...]]:
        return {
            (finding.area, value.pod or "", finding.aspect, value.detail or "")
            for finding in compared_releases(case, comparison_start, comparison_end).findings
            for value in finding.values
            if finding.area is not Area.WAY_BACK
        }

    assert changed(start, end) == changed(end, start)


@COSTLY
@given(cases(), TABLES, TABLES)
def test_each_cause_alters_the_value_that_it_explains(
    case: UpgradeCase, start: ReleaseTable, end: ReleaseTable
) -> None:
    decided = decide(case, start).facts, decide(case, end).facts
    differences = list(differences_of(*decided))
    causes = changes_that_make(differences, start, end, lambda table: decide(case, table))
    is_upgrade = list(RELEASE_TABLES).index(start.name) < list(RELEASE_TABLES).index(end.name)
    by_rule = {
        change.now if is_upgrade else change.before: change
        for change in changes_between(start.name, end.name)
    }
    for difference in differences:
        for cause in causes[difference]:
            change = by_rule[cause.rule]
            made = decide(case, with_change(start, change, applied=is_upgrade)).facts
            taken_back = decide(case, with_change(end, change, applied=not is_upgrade)).facts
            alters = value_of(difference, made) != difference.before
            assert alters or value_of(difference, taken_back) != difference.after


@COSTLY
@given(cases(), TABLES, TABLES)
def test_every_difference_of_decisions_has_a_cause(
    case: UpgradeCase, start: ReleaseTable, end: ReleaseTable
) -> None:
    findings = compared_releases(case, start, end).findings
    assert [finding for finding in findings if not finding.causes] == []
