"""The Python API: what it takes, and how its answers show themselves."""

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import nodewright
from nodewright import Decision, InputError, Node, features, load_pods
from nodewright.features import lint

PODS, WORKER = "examples/admission/pods.yaml", "examples/nodes/worker.yaml"
TEXT = Path(PODS).read_text("utf-8")
GUIDE = Path("docs/guide/python.md")


def test_the_version_is_that_of_the_package() -> None:
    assert nodewright.__version__ == version("nodewright")


@pytest.mark.parametrize(
    ("module", "name", "before"),
    [
        ("nodewright.model.reasons.predicates", "InsufficientResource", "nodewright.reasons.predicates"),
        ("nodewright.model.reasons.verdict", "Granted", "nodewright.reasons.verdict"),
        (
            "nodewright.model.kubernetes.pod_spec_fields",
            "PodSecurityContext",
            "nodewright.kubernetes.pod_spec_fields",
        ),
        (
            "nodewright.documents.profiles.kubelet_root",
            "read_kubelet_root",
            "nodewright.profiles.kubelet_root",
        ),
        ("nodewright.model.errors", "InputError", "nodewright.errors"),
    ],
)
def test_the_import_paths_that_the_guide_showed_before_give_the_same_objects(
    module: str, name: str, before: str
) -> None:
    present, past = importlib.import_module(module), importlib.import_module(before)
    assert past is present
    assert getattr(past, name) is getattr(present, name)
    assert present.__spec__ is not None
    assert present.__spec__.name == present.__name__ == module


def test_packages_that_did_not_move_have_no_other_path() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"nodewright\.nowhere"):
        importlib.import_module("nodewright.nowhere")
    with pytest.raises(ModuleNotFoundError, match=r"nodewright\.model\.reasons\.nowhere"):
        importlib.import_module("nodewright.reasons.nowhere")


def test_pods_are_loaded_from_whatever_code_holds() -> None:
    wanted = load_pods(PODS)
    assert load_pods(Path(PODS)) == wanted
    assert load_pods(TEXT) == wanted
    assert load_pods(TEXT.encode()) == wanted
    assert load_pods(*yaml.safe_load_all(TEXT)) == wanted
    assert load_pods({"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(TEXT))}) == wanted


def test_a_fault_of_a_mapping_names_the_argument_and_the_field() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    with pytest.raises(InputError, match=r"argument 2.*spec\.containers: Required value"):
        load_pods(PODS, pod)


def test_a_node_is_opened_from_whatever_code_holds() -> None:
    text = Path(WORKER).read_text("utf-8")
    wanted = Node.open(WORKER)
    for reference in (Path(WORKER), text, text.encode(), yaml.safe_load(text)):
        node = Node.open(reference)
        assert (node.name, node.allocatable, node.pods) == (wanted.name, wanted.allocatable, wanted.pods)
    with pytest.raises(InputError, match="machineInfo"):
        Node.open(
            {"apiVersion": "nodewright.dev/v1alpha1", "kind": "NodeProfile", "spec": {"machineInfo": 3}}
        )


def test_answers_have_a_short_text_and_a_page_for_notebooks() -> None:
    node, report = Node.open(WORKER), load_pods(PODS)[1]
    answer = node.admit(report).node.admit(report)
    assert repr(answer) == "<AdmitResult jobs/report: refused (OutOfcpu)>"
    assert answer.decision is Decision.REFUSED
    assert re.fullmatch(r"<Node worker-1: Kubernetes v1\.36\.2, 2 pods>", repr(node))
    explanation = answer.node.explain(report)
    assert repr(explanation) == "<Explanation jobs/report: refused>"
    assert "container report: 1.5 CPUs instead of 2" in explanation.text()
    for value in (node, answer, explanation):
        page = value._repr_html_()
        assert page.startswith('<div class="nodewright">')
        assert "<svg" in page
        assert "<script" not in page
    assert "OutOfcpu" in explanation._repr_html_()
    assert isinstance(node.without_pod(node.pods[0].uid), Node)


def test_lint_is_a_function() -> None:
    report = lint("examples/lint/shop.yaml", disable=["NW101"])
    assert [finding.rule for finding in report.findings] == ["NW102", "NW110"]
    with_node = lint("examples/lint/shop.yaml", only=["NW204"], nodes=["vm-4"])
    assert {finding.rule for finding in with_node.findings} == {"NW204"}


@pytest.mark.slow
def test_the_examples_of_the_guide_are_typed_strictly(tmp_path: Path) -> None:
    lines = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert len(lines) > 30
    script = tmp_path / "guide.py"
    script.write_text("\n".join(lines))
    environment = {**os.environ, "MYPYPATH": str(Path("src").resolve())}
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--disable-error-code=no-untyped-call",
        "--config-file=",
    ]
    command += ["--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent", str(script)]
    checked = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert checked.returncode == 0, checked.stdout


def test_the_public_names_are_what_completion_finds() -> None:
    assert dir(nodewright) == sorted(nodewright.__all__)


def test_values_are_short_when_printed() -> None:
    (pod, *_) = nodewright.load_pods("examples/admission/pods.yaml")
    report = features.quota("examples/quota/shop")
    assert repr(pod) == "<Pod shop/web: nginx>"
    assert repr(report).startswith("<AppliedQuotasReport ")
    assert len(repr(report)) < 200
