"""Lint rules that are about some releases only."""

import json
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.lint.lint_report import rule_page
from nodewright.predict.lint.rules import RULES_BY_ID

EMPTY_LEVEL = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  resources: {}
  containers: [{name: web, image: web, resources: {requests: {cpu: "1", memory: 1Gi}}}]
"""
QOS = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
featureGates: {MemoryQoS: true}
"""
DROPPED = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi}
"""


def findings(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    run(["lint", "-f", str(path), "-o", "json", *options])
    report = json.loads(capsys.readouterr().out)
    return list(report["findings"])


def rules(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> set[object]:
    return {finding["rule"] for finding in findings(path, capsys, *options)}


@pytest.mark.parametrize(
    ("text", "rule", "before", "since"),
    [(EMPTY_LEVEL, "NW104", "1.33", "1.34"), (QOS, "NW315", "1.35", "1.36")],
)
def test_a_rule_has_findings_from_its_release_on(
    text: str, rule: str, before: str, since: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert rule in rules(file, capsys)
    assert rule in rules(file, capsys, "--release", since)
    assert rule not in rules(file, capsys, "--release", before)
    assert RULES_BY_ID[rule].since == since
    assert f"From Kubernetes {since} on." in rule_page(RULES_BY_ID[rule])


def test_pods_are_judged_by_the_releases_of_the_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(EMPTY_LEVEL)
    examples = Path(__file__).parents[4] / "examples" / "upgrade"
    old, new = examples / "worker-7.yaml", examples / "nodes" / "edge-3.yaml"
    assert "NW104" not in rules(file, capsys, "--node", str(old))
    assert "NW104" in rules(file, capsys, "--node", str(old), "--node", str(new))


def test_an_ignored_rule_of_later_releases_is_no_unused_ignore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text("# nodewright: ignore NW315 as intended\n" + QOS)
    assert rules(file, capsys, "--release", "1.35") == rules(file, capsys) == set()


def test_a_fix_names_no_field_that_the_release_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(DROPPED)
    (old,) = findings(file, capsys, "--release", "1.32")
    (new,) = findings(file, capsys, "--release", "1.33")
    assert old["rule"] == new["rule"] == "NW309"
    assert "mergeDefaultEvictionSettings" in json.dumps(new.get("edits", new))
    assert "mergeDefaultEvictionSettings: true" not in json.dumps(old)


def test_the_releases_of_rules_are_known() -> None:
    assert {rule.since for rule in RULES_BY_ID.values()} - {""} <= RELEASE_TABLES.keys()
