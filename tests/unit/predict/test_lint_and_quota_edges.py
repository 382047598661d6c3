"""Edits that have to be given up, the pages of rules, and what a pod needs that is refused whatever the quotas have left."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.inventory import inventory_from_bytes, load_inventory
from nodewright.engine.admission.api_server.apply import ApplyResult, apply
from nodewright.engine.admission.api_server.charges import NamespacePolicy
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.api_request import Manifest
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.container_evidence import (
    ContainerEnded,
    NodesUnsuitable,
    OverLimit,
    failed_containers,
    scheduling_facts,
)
from nodewright.predict.lint.fixes import MAX_ROUNDS, Relint, edited_inventory, file_contents, fixed_files
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_model import SuggestedEdit
from nodewright.predict.lint.lint_report import rule_page, rules_page
from nodewright.predict.lint.lint_run import LintResult, lint_result
from nodewright.predict.lint.rules import ALL_RULES, RULES, RULES_BY_ID
from nodewright.predict.quota.fixes import QuotaFixes, pod_headroom, smallest_fixes
from nodewright.predict.quota.remedies import changed_amounts, remedy
from tools.source import ROOT

SHOP = (ROOT / "examples/lint/shop.yaml").read_text("utf-8")


class Linted:
    """A file with findings, and what lint finds in other contents of it."""

    def __init__(self, folder: Path, text: str = SHOP) -> None:
        self.path = folder / "shop.yaml"
        self.path.write_text(text, "utf-8")
        self.inventory = load_inventory([str(self.path)])
        self.files = file_contents(self.inventory)
        self.result = lint_result(load_lint_input(self.inventory), ALL_RULES)

    def again(self, contents: Mapping[str, bytes]) -> LintResult:
        return lint_result(load_lint_input(edited_inventory(self.inventory, contents)), ALL_RULES)


def test_edits_whose_findings_stay_are_tried_alone_and_given_up(tmp_path: Path) -> None:
    shop, tried = Linted(tmp_path), []

    def unimpressed(contents: Mapping[str, bytes]) -> LintResult:
        tried.append(contents[str(shop.path)])
        return shop.result

    fixes = fixed_files(shop.files, shop.result, unimpressed)
    assert (fixes.after, fixes.fixed, fixes.result, fixes.diff()) == ({}, (), shop.result, "")
    assert len(set(tried)) == len(tried) >= 3, "all at once, then each half; none twice"


def test_an_edit_with_which_the_object_is_rejected_is_left_out_and_the_others_are_kept(
    tmp_path: Path,
) -> None:
    shop = Linted(tmp_path)

    def picky(contents: Mapping[str, bytes]) -> LintResult:
        if b"limits: {memory: 64Mi, cpu: 100m}" in contents[str(shop.path)]:
            raise InputError([])
        return shop.again(contents)

    everything = fixed_files(shop.files, shop.result, shop.again)
    assert [finding.rule.id for finding in everything.fixed] == ["NW102", "NW101"]
    fixes = fixed_files(shop.files, shop.result, picky)
    assert [finding.rule.id for finding in fixes.fixed] == ["NW101"]
    assert [finding.rule.id for finding in fixes.result.findings] == ["NW102"]
    assert fixes.found_count == everything.found_count
    assert b"limits: {memory: 64Mi}" in fixes.after[str(shop.path)]


def test_a_file_with_unusual_line_breaks_is_not_edited(tmp_path: Path) -> None:
    shop = Linted(tmp_path, f"# one\u2028# two\n{SHOP}")
    assert any(finding.edits for finding in shop.result.findings)
    fixes = fixed_files(shop.files, shop.result, shop.again)
    assert (fixes.after, fixes.fixed, fixes.result) == ({}, (), shop.result)


def test_the_rounds_are_bounded(tmp_path: Path) -> None:
    shop = Linted(tmp_path)
    one = next(finding for finding in shop.result.findings if len(finding.edits) == 1)
    (edit,) = one.edits
    findings = [
        replace(one, edits=(SuggestedEdit(edit.path, f"{number + 200}m"),))
        for number in range(MAX_ROUNDS + 2)
    ]

    def next_one(_contents: Mapping[str, bytes]) -> LintResult:
        findings.pop(0)
        return replace(shop.result, findings=tuple(findings))

    relint: Relint = next_one
    fixes = fixed_files(shop.files, replace(shop.result, findings=tuple(findings)), relint)
    assert (len(fixes.fixed), len(fixes.result.findings)) == (MAX_ROUNDS, 2)
    assert f"{MAX_ROUNDS + 199}m".encode() in fixes.after[str(shop.path)]


def test_files_that_are_gone_or_changed_are_not_edited(tmp_path: Path) -> None:
    shop = Linted(tmp_path)
    assert shop.files == {str(shop.path): SHOP.encode()}
    shop.path.write_text(f"{SHOP}# more\n")
    assert file_contents(shop.inventory) == {}
    shop.path.unlink()
    assert file_contents(shop.inventory) == {}


# ---------------------------------------------------------------- pages of rules


def test_the_list_of_rules_has_a_line_with_a_link_for_each() -> None:
    lines = rules_page(RULES).splitlines()
    assert lines[0] == "# Rules of nodewright lint"
    table = lines[lines.index("|---|---|---|---|---|") + 1 :]
    assert [line.partition("]")[0] for line in table] == [f"| [{rule.id}" for rule in RULES]
    needs_nodes = [line.split(" | ")[3] for line in table]
    assert needs_nodes == ["yes" if rule.needs_node else "" for rule in RULES]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.page.node], ids=lambda rule: rule.id)
def test_a_page_says_with_which_nodes_its_example_is_bad(rule: Any) -> None:
    bad = next(line for line in rule_page(rule).splitlines() if line.startswith("## Bad"))
    assert all(f"--node {name}" in bad for name in rule.page.node.split())
    assert ("--kubelet-config kubelet.yaml" in bad) == bool(rule.page.kubelet_config)
    assert ("## The kubelet of the examples" in rule_page(rule)) == bool(rule.page.kubelet_config)


def test_a_page_without_nodes_names_none() -> None:
    page = rule_page(RULES_BY_ID["NW103"])
    assert "\n## Bad\n" in page
    assert "## The kubelet of the examples" not in page


# ---------------------------------------------------------------- what a refused pod or claim needs

QUOTA = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {%s}}}"
RANGE = "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{%s}]}}"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: i, %s}]%s}}"
CLAIM = (
    "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, "
    "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}}"
)


def manifests(*texts: str) -> list[Manifest]:
    return [
        entry.manifest for entry in inventory_from_bytes("\n---\n".join(texts).encode(), "f.yaml").objects
    ]


def replica_set(name: str, replicas: int, resources: str, more: str = "") -> str:
    """A ReplicaSet whose pods have one container with these resources."""
    spec = f"containers: [{{name: a, image: i, resources: {{{resources}}}}}]{more}"
    template = f"template: {{metadata: {{labels: {{a: b}}}}, spec: {{{spec}}}}}"
    return (
        f"{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: {name}}}, "
        f"spec: {{replicas: {replicas}, selector: {{matchLabels: {{a: b}}}}, {template}}}}}"
    )


def applied_with(*texts: str) -> tuple[list[Manifest], ApplyResult]:
    objects = manifests(*texts)
    return objects, apply(objects, ExpansionOptions())


def namespace_and_first(*texts: str) -> tuple[NamespacePolicy, Manifest]:
    """The namespace of the objects, and the first of them."""
    objects, applied = applied_with(*texts)
    return applied.before["default"], objects[0]


def quota_fixes(*texts: str, surge: bool = False) -> QuotaFixes:
    objects, options = manifests(*texts), ExpansionOptions(surge=surge)
    return smallest_fixes(objects, apply(objects, options), options)


CLAIM_RANGE = RANGE % "type: PersistentVolumeClaim, max: {storage: 2Gi}"
TWO_RANGES = "\n---\n".join(
    (RANGE.replace("name: l", "name: m") % "type: %s, min: {%s: 3Gi}", RANGE % "type: %s, max: {%s: 2Gi}")
)
"""A minimum above the maximum, which one LimitRange cannot have."""

# What is refused, the limit range or quota, and what helps.
REMEDIES = {
    "a ratio of bytes below a Mi": (
        POD % ("resources: {requests: {memory: 1k}, limits: {memory: 8k}}", ""),
        RANGE % "type: Container, maxLimitRequestRatio: {memory: 2}",
        "set requests.memory of container a to 4k: LimitRange l allows limits of at most 2 times the requests",
    ),
    "a ratio of bytes above a Mi, in whole Mi": (
        POD % ("resources: {requests: {memory: 1Mi}, limits: {memory: 5Mi}}", ""),
        RANGE % "type: Container, maxLimitRequestRatio: {memory: 2}",
        "set requests.memory of container a to 3Mi: LimitRange l allows limits of at most 2 times the requests",
    ),
    "a claim above the maximum": (
        CLAIM % "5Gi",
        CLAIM_RANGE,
        "set spec.resources.requests.storage to 2Gi: LimitRange l allows at most that",
    ),
    "a claim below a minimum that is above the maximum": (
        CLAIM % "1Gi",
        TWO_RANGES % (("PersistentVolumeClaim", "storage") * 2),
        "",
    ),
    "a claim that no limit range refuses": (CLAIM % "1Gi", QUOTA % "pods: 1", ""),
    "an object without amounts": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}",
        QUOTA % "configmaps: 0",
        "",
    ),
    "a pod with a priority that is not that of its class": (
        POD % ("resources: {requests: {cpu: 1}}", ", priority: 7"),
        QUOTA % "pods: 1",
        "",
    ),
}


@pytest.mark.parametrize(("refused", "policy", "text"), REMEDIES.values(), ids=REMEDIES)
def test_what_helps_a_refused_object(refused: str, policy: str, text: str) -> None:
    namespace, manifest = namespace_and_first(refused, policy)
    assert remedy(manifest, namespace, 1) == text


def test_no_amount_helps_a_pod_between_a_minimum_and_a_lower_maximum() -> None:
    pod = POD % ("resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}", "")
    namespace, manifest = namespace_and_first(pod, TWO_RANGES % (("Container", "memory") * 2))
    assert isinstance(manifest.object, Pod)
    assert changed_amounts(manifest.object, namespace) == {}
    assert remedy(manifest, namespace, 1) == ""


def test_an_amount_that_the_user_may_choose_is_asked_for_once() -> None:
    both = "type: Container, maxLimitRequestRatio: {cpu: 2}}, {type: Pod, maxLimitRequestRatio: {cpu: 2}"
    namespace, manifest = namespace_and_first(POD % ("resources: {}", ""), RANGE % both)
    assert isinstance(manifest.object, Pod)
    assert changed_amounts(manifest.object, namespace) == {
        ("a", "requests", "cpu"): None,
        ("a", "limits", "cpu"): None,
    }
    assert remedy(manifest, namespace, 1) == (
        "set requests.cpu and limits.cpu of container a: LimitRange l bounds the ratio of limits to requests"
    )


# ---------------------------------------------------------------- what makes everything fit


def test_terminated_pods_have_no_headroom() -> None:
    ended = POD.replace("}, spec:", ", uid: u}, status: {phase: Succeeded}, spec:", 1) % (
        "resources: {limits: {cpu: 1}}",
        "",
    )
    running = ended.replace("name: p, uid: u", "name: r, uid: r", 1).replace("Succeeded", "Running")
    objects, applied = applied_with(ended, running, QUOTA % "limits.cpu: 3")
    headroom = pod_headroom(objects, applied, ExpansionOptions())
    assert [(each.manifest, each.additional_pods) for each in headroom] == [(1, 2)]


def test_of_several_objects_only_those_that_do_not_fit_are_reduced() -> None:
    fixes = quota_fixes(
        replica_set("a", 2, "limits: {cpu: 1}"),
        replica_set("b", 3, "limits: {cpu: 1, memory: 1Gi}"),
        replica_set("c", 3, "limits: {cpu: 1, memory: 1Gi}"),
        QUOTA % "limits.memory: 2Gi, limits.cpu: 99, pods: 99",
    )
    assert not fixes.single_reductions
    assert [(each.manifest, each.replicas, each.maximum) for each in fixes.combined_reductions] == [
        (1, 3, 1),
        (2, 3, 1),
    ]


def test_maxsurge_0_is_not_sufficient_where_another_object_exceeds_another_resource() -> None:
    deployment = replica_set("a", 2, "limits: {cpu: 1}").replace("ReplicaSet", "Deployment")
    quota = QUOTA % "limits.cpu: 2, limits.memory: 1Gi"
    assert quota_fixes(deployment, QUOTA % "limits.cpu: 2", surge=True).without_surge == ((0,),)
    limits = "limits: {cpu: %s, memory: %s}"
    deployment = deployment.replace("limits: {cpu: 1}", limits % (1, 0))
    fits, exceeds = (replica_set("b", count, limits % (0, "1Gi")) for count in (1, 2))
    assert quota_fixes(deployment, fits, quota, surge=True).without_surge == ((0,),)
    assert quota_fixes(deployment, exceeds, quota, surge=True).without_surge == ()


EPHEMERAL = (
    ", volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], "
    "resources: {requests: {storage: 5Gi}}}}}}]"
)


def test_a_refused_claim_of_an_ephemeral_volume_does_not_keep_its_pods_from_being_charged() -> None:
    fixes = quota_fixes(replica_set("a", 3, "", EPHEMERAL), CLAIM_RANGE, QUOTA % "pods: 2")
    assert [(each.resource, str(each.minimum)) for each in fixes.quota_increases] == [("pods", "3")]
    assert [(each.manifest, each.maximum) for each in fixes.single_reductions] == [(0, 2)]


def test_no_pod_is_charged_of_a_stateful_set_whose_claims_are_refused() -> None:
    template = (
        "volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], "
        "resources: {requests: {storage: 5Gi}}}}], serviceName: s, replicas: 4"
    )
    claims = replica_set("s", 4, "").replace("ReplicaSet", "StatefulSet").replace("replicas: 4", template)
    fixes = quota_fixes(claims, replica_set("r", 3, ""), CLAIM_RANGE, QUOTA % "pods: 2")
    assert [(each.resource, str(each.minimum)) for each in fixes.quota_increases] == [("pods", "3")]
    assert [(each.manifest, each.maximum) for each in fixes.single_reductions] == [(1, 2)]
    assert fixes.unfixable[0].manifest == 0


# ---------------------------------------------------------------- what a status proves


def scheduled(reason: str, message: str) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return decode({"status": {"phase": "Pending", "conditions": [condition]}}, Pod)


def test_only_what_the_scheduler_says_of_nodes_and_gates_explains_why_a_pod_has_no_node() -> None:
    assert list(scheduling_facts(scheduled("SchedulerError", "binding rejected"))) == []
    without_preemption = scheduled("Unschedulable", "0/2 nodes are available: 2 Too many pods.")
    assert list(scheduling_facts(without_preemption)) == [
        NodesUnsuitable(reason="Too many pods", node_count=2, total=2)
    ]


def test_a_container_that_failed_by_itself_is_reported_with_its_reason() -> None:
    status = {"name": "app", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    failed = decode({"status": {"phase": "Failed", "containerStatuses": [status]}}, Pod)
    (fact,) = failed_containers(failed)
    assert fact == ContainerEnded(name="app", reason="Error", exit_code=3)
    assert fact.sentence() == "container app ended with exit code 3 (Error)"


def test_a_message_about_a_storage_limit_leaves_the_usage_open() -> None:
    over = OverLimit(what="pod", name="", limit="2Gi")
    assert over.open_question() == "how much it used: the message has the limit only"
