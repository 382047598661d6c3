"""What always holds of linting, whatever the files are."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.documents.formats.inventory import load_inventory
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, step
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod
from nodewright.model.kubernetes.pod_spec_fields import EnvVar
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_run import lint_result
from nodewright.predict.lint.rules import ALL_RULES, RULES_BY_ID, RuleSelection
from nodewright.predict.node import Node
from nodewright.testing.strategies import pods

# Manifests that other rules' examples may stand beside: those of pods, without nodes or namespaces' limits.
NAMES = [rule for rule in sorted(RULES_BY_ID) if rule[2] == "1"]
TEXTS = {
    rule: RULES_BY_ID[rule].page.bad.replace("name: web\n", f"name: {rule.lower()}\n", 1) for rule in NAMES
}
KUBELET = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
    'cpuManagerPolicyOptions: {full-pcpus-only: "true"}\nreservedSystemCPUs: 0-1\n'
)
mixtures = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True).flatmap(
    lambda chosen: st.tuples(st.just(chosen), st.permutations(chosen))
)


def lint_texts(
    texts: list[str], selection: RuleSelection = ALL_RULES, *, node: str | None = None
) -> list[LintFinding]:
    with tempfile.TemporaryDirectory() as folder:
        kubelet = Path(folder, "kubelet.yaml")
        kubelet.write_text(KUBELET)
        paths = []
        for number, text in enumerate(texts):
            path = Path(folder, f"{number}.yaml")
            path.write_text(text)
            paths.append(str(path))
        inventory = load_inventory(paths)
        lint_input = load_lint_input(inventory, [node], str(kubelet)) if node else load_lint_input(inventory)
        return list(lint_result(lint_input, selection).findings)


def facts(found: list[LintFinding]) -> set[tuple[str, str, int, str]]:
    return {
        (lint_finding.rule.id, lint_finding.subject, lint_finding.position.line, lint_finding.text)
        for lint_finding in found
    }


@given(mixtures, st.sampled_from([None, "vm-4"]))
def test_the_order_of_files_changes_nothing(mixture: tuple[list[str], list[str]], node: str | None) -> None:
    one, other = ([TEXTS[rule] for rule in order] for order in mixture)
    assert facts(lint_texts(one, node=node)) == facts(lint_texts(other, node=node))


@given(mixtures, st.data())
def test_an_ignored_finding_disappears_and_nothing_else(
    mixture: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    texts = [TEXTS[rule] for rule in mixture[0]]
    before = lint_texts(texts)
    gone = data.draw(st.sampled_from(before))
    number = int(Path(gone.position.file).stem)
    lines = texts[number].splitlines()
    lines[gone.position.line - 1] += f"  # nodewright: ignore {gone.rule.id} we know"
    after = lint_texts([*texts[:number], "\n".join(lines) + "\n", *texts[number + 1 :]])
    assert facts(before) - facts(after) == facts([gone])
    assert facts(after) <= facts(before)


@given(mixtures, st.sets(st.sampled_from(sorted(RULES_BY_ID))))
def test_rules_do_not_hear_of_one_another(mixture: tuple[list[str], list[str]], off: set[str]) -> None:
    texts = [TEXTS[rule] for rule in mixture[0]]
    left = {fact for fact in facts(lint_texts(texts)) if fact[0] not in off}
    assert facts(lint_texts(texts, RuleSelection(disabled=frozenset(off)))) == left
    if off:
        assert facts(lint_texts(texts, RuleSelection(only=frozenset(off)))) == facts(lint_texts(texts)) - left


NODES = [Node.from_profile(find_profile(name)).state for name in ("vm-4", "epyc-7742-2s-nps4")]


def other_program(each: Container, image: str) -> Container:
    return replace(
        each, image=image, command=(image,), args=("-v",), env=(EnvVar(name="IMAGE", value=image),)
    )


@given(pods(), st.sampled_from(NODES), st.text("abc", min_size=1, max_size=3))
def test_nodes_judge_alike_what_differs_in_names_labels_and_programs(
    pod: Pod, node: NodeState, text: str
) -> None:
    spec = replace(
        pod.spec,
        containers=tuple(other_program(each, text) for each in pod.spec.containers),
        init_containers=tuple(other_program(each, text) for each in pod.spec.init_containers),
    )
    other = Pod(metadata=ObjectMeta(name=text, uid=text, namespace=text, labels={text: text}), spec=spec)
    verdicts = [step(node, PodAdded(with_uid(with_defaults(each)))) for each in (pod, other)]
    assert verdicts[0].decision is verdicts[1].decision
    if verdicts[0].decision is not Decision.REFUSED:
        assert verdicts[0].because == verdicts[1].because


MANIFEST = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n"
    "  selector:\n    matchLabels:\n      app: {app}\n  template:\n    metadata:\n      labels: {{app: {app}{system}}}\n"
    "    spec:\n      nodeSelector: {{{selector}}}\n      containers:\n      - name: main\n        image: {image}\n"
    "        resources:\n          {cpu}\n"
)
WORKLOADS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["web", "shop", "queue"]),
        "namespace": st.sampled_from(["default", "default", "small"]),
        "app": st.sampled_from(["web", "shop"]),
        "system": st.sampled_from(["", "", ", kubernetes.io/os: windows"]),
        "selector": st.sampled_from(["", "kubernetes.io/os: linux"]),
        "image": st.sampled_from(["registry.example/main:1", "registry.example/main:2"]),
        "cpu": st.sampled_from(
            ["requests: {cpu: 100m}", "requests: {cpu: 100m}", "limits: {cpu: 5m}", "limits: {cpu: 500}"]
        ),
    }
)
LIMIT_RANGE = (
    "apiVersion: v1\nkind: LimitRange\nmetadata: {name: small, namespace: small}\nspec:\n"
    "  limits: [{type: Container, max: {cpu: 200m}}]\n"
)


@given(st.lists(WORKLOADS, min_size=2, max_size=6), st.sampled_from([None, "vm-4"]))
def test_a_workload_has_the_findings_that_it_has_alone(
    workloads: list[dict[str, str]], node: str | None
) -> None:
    """Also one that is like another without violations, which is not checked again."""
    texts = [MANIFEST.format(**workload) for workload in workloads]
    together = lint_texts([LIMIT_RANGE, *texts], node=node)
    for number, text in enumerate(texts, 1):
        own = [finding for finding in together if Path(finding.position.file).stem == str(number)]
        alone = [
            finding
            for finding in lint_texts([LIMIT_RANGE, text], node=node)
            if finding.subject.startswith("Dep")
        ]
        assert facts(own) == facts(alone)
