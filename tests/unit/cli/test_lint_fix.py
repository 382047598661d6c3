"""`nodewright lint --fix` and `--diff`: edits that are tried, in files that stay as they are otherwise."""

import json
import os
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES
from nodewright.predict.lint.rules import RULES_BY_ID

SHOP = Path("examples/lint/shop.yaml").read_text("utf-8")
BROKEN = "apiVersion: v1\nkind: Pod\nmetadata: {name: a\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return path


def test_fixes_change_two_lines_and_leave_no_findings(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.chmod(0o640)
    assert run(["lint", "-f", "shop.yaml", "--fix"]) == YES
    captured = capsys.readouterr()
    assert captured.err == "fixed 2 of 2 findings\n", "NW101 and NW110 edit the same field"
    assert captured.out == "no findings in 3 objects\n"
    before, after = SHOP.splitlines(), shop.read_text().splitlines()
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 3
    assert shop.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in shop.parent.iterdir() if path.name.startswith(".shop")] == []


def test_a_diff_changes_no_file(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "-f", "shop.yaml", "--diff"]) == NO
    assert (
        "-          limits: {memory: 64Mi}\n+          limits: {memory: 64Mi, cpu: 100m}\n"
        in capsys.readouterr().out
    )
    assert shop.read_text() == SHOP
    shop.write_text(RULES_BY_ID["NW118"].page.good)
    assert run(["lint", "-f", "shop.yaml", "--diff"]) == YES
    assert capsys.readouterr().out == ""


def test_edits_whose_value_the_user_has_to_choose_are_left(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write_text(RULES_BY_ID["NW118"].page.bad)
    assert run(["lint", "-f", "shop.yaml", "--fix"]) == YES
    assert "NW118" in capsys.readouterr().out
    assert shop.read_text() == RULES_BY_ID["NW118"].page.bad


def test_a_file_with_a_broken_document_is_never_written(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{SHOP}---\n{BROKEN}"
    shop.write_text(text)
    other = shop.with_name("other.yaml")
    other.write_text(SHOP.replace("namespace: shop", "namespace: two"))
    assert run(["lint", "-f", ".", "--fix"]) == ERROR
    assert shop.read_text() == text
    assert "{memory: 64Mi, cpu: 100m}" in other.read_text()
    assert "NW102" in capsys.readouterr().out


def test_a_symbolic_link_stays_one(shop: Path) -> None:
    target = shop.rename(shop.with_name("target.txt"))
    shop.symlink_to(target.name)
    assert run(["lint", "-f", "shop.yaml", "--fix"]) == YES
    assert shop.is_symlink()
    assert target.read_text() != SHOP


def test_standard_input_cannot_be_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "-f", "-", "--fix"]) == USAGE
    assert "need files" in capsys.readouterr().err


def test_items_of_a_list_in_json_are_fixed(shop: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {
            "containers": [
                {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
            ]
        },
    }
    path = shop.with_name("list.json")
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod]}, indent=1))
    assert run(["lint", "-f", "list.json", "--only", "NW103", "--fix"]) == YES
    (fixed,) = json.loads(path.read_text())["items"]
    assert fixed["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize("rule", sorted(RULES_BY_ID))
def test_every_complete_edit_of_the_pages_is_applied(
    rule: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = RULES_BY_ID[rule].page
    shop.write_text(page.bad)
    arguments = ["lint", "-f", "shop.yaml", "--only", rule]
    if page.node:
        arguments += [word for name in page.node.split() for word in ("--node", name)]
    if page.kubelet_config:
        config = shop.with_name("kubelet.conf")
        config.write_text(page.kubelet_config)
        arguments += ["--kubelet-config", os.path.relpath(config)]
    run([*arguments, "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    complete = [
        finding
        for finding in findings
        if finding["file"] == "shop.yaml"
        and finding["fix"]
        and not any(edit.get("choose") for edit in finding["fix"])
    ]
    run([*arguments, "--fix", "-o", "json"])
    after = json.loads(capsys.readouterr().out)["findings"]
    assert len(after) == len(findings) - len(complete)
    assert (shop.read_text() != page.bad) == bool(complete)


def test_limits_that_a_quota_requires_are_named_in_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}\n---\n"
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {limits.memory: 1Gi}}}\n"
    )
    run(["lint", "-f", str(path), "--only", "NW403"])
    assert "fix in Pod default/p: set spec.containers[0].resources.limits[memory]" in capsys.readouterr().out
