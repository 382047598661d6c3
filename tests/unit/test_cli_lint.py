import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES
from nodewright.predict.lint.rules import RULES_BY_ID

SHOP = "examples/lint/shop.yaml"
KUBELET = "examples/lint/kubelet.yaml"
ON_NODE = ["lint", "-f", SHOP, "--node", "epyc-7742-2s-nps1", "--kubelet-config", KUBELET]


@pytest.mark.parametrize(("fail_on", "code"), [("error", YES), ("warning", NO), ("info", NO), ("never", YES)])
def test_the_exit_code_goes_by_the_worst_finding(fail_on: str, code: int) -> None:
    assert run(["lint", "-f", SHOP, "--fail-on", fail_on]) == code


def test_live_pods_can_be_put_to_a_node() -> None:
    assert run(["lint", "-f", "examples/manifests/list.json", "--node", "epyc-7742-2s-nps1"]) == YES


def test_only_and_disable_choose_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "-f", SHOP, "--only", "NW101,NW102", "--disable", "NW101", "-o", "json"]) == YES
    document = json.loads(capsys.readouterr().out)
    assert document["rules"] == ["NW102"]
    assert [finding["rule"] for finding in document["findings"]] == ["NW102"]


def test_unknown_rules_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "-f", SHOP, "--only", "NW999"]) == ERROR
    assert run(["lint", "--explain", "101"]) == ERROR
    assert capsys.readouterr().err.count("is not a rule") == 2


def test_a_rule_is_explained_without_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "--explain", "NW103"]) == YES
    assert capsys.readouterr().out.startswith("# NW103: Limits without requests\n")
    assert run(["lint", "--explain", "all"]) == YES
    assert len(capsys.readouterr().out.splitlines()) == len(RULES_BY_ID) + 1
    assert run(["lint"]) == USAGE


def test_json_and_yaml_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ON_NODE, "-o", "json"]) == NO
    document = json.loads(capsys.readouterr().out)
    assert run([*ON_NODE, "-o", "yaml"]) == NO
    assert yaml.safe_load(capsys.readouterr().out) == document
    assert document["counts"] == {"error": 1, "warning": 5, "info": 0}
    [odd] = [finding for finding in document["findings"] if finding["rule"] == "NW201"]
    assert (odd["file"], odd["line"], odd["object"]) == (SHOP, 65, "StatefulSet shop/ledger")
    assert odd["facts"]["reason"] == {"type": "NotWholeCores", "requested": 5, "cpusPerCore": 2}
    assert odd["fix"][0] == {"path": "spec.template.spec.containers[0].resources.requests[cpu]", "value": "6"}


def test_sarif_has_the_form_that_code_hosts_require(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ON_NODE, "-o", "sarif"]) == NO
    log = json.loads(capsys.readouterr().out)
    [one_run] = log["runs"]
    rules = one_run["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == list(RULES_BY_ID)
    assert {rule["defaultConfiguration"]["level"] for rule in rules} == {"error", "warning", "note"}
    assert len(one_run["results"]) == 6
    for result in one_run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] == rules[result["ruleIndex"]]["defaultConfiguration"]["level"]
        [location] = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] in (SHOP, KUBELET)
        assert physical["region"]["startLine"] > 1


def test_junit_has_a_test_an_object_that_fails_from_fail_on_upwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*ON_NODE, "-o", "junit"]) == NO
    root = ET.fromstring(capsys.readouterr().out)  # noqa: S314 - our own
    cases = {str(case.get("name")): case.find("failure") for case in root.iter("testcase")}
    assert len(cases) == 4
    assert [name for name, failure in cases.items() if failure is not None] == ["StatefulSet shop/ledger"]
    assert run([*ON_NODE, "-o", "junit", "--fail-on", "warning"]) == NO
    assert capsys.readouterr().out.count("<failure") == 4


def test_a_broken_file_does_not_hide_findings_in_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.yaml").write_text(Path(SHOP).read_text())
    (tmp_path / "broken.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {container: []}\n"
    )
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    assert run(["lint", "-f", str(tmp_path)]) == ERROR
    printed = capsys.readouterr()
    assert "3 warnings in 3 objects" in printed.out
    assert "unknown field" in printed.err
    assert "skipped: 1 document without apiVersion and kind" in printed.err
    assert "values.yaml" not in printed.err


_BURST = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: a, image: x}}]}}}}\n"


@pytest.mark.parametrize(
    "broken", ["a: [1, 2\n", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {container: []}\n"]
)
def test_a_broken_document_does_not_hide_the_sound_ones_of_its_file(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join((_BURST.format(name="first"), broken, _BURST.format(name="last"))))
    assert run(["lint", "-f", str(path)]) == ERROR
    printed = capsys.readouterr()
    assert [line.split(":")[1] for line in printed.out.splitlines() if "[NW101]" in line] == [
        "6",
        str(path.read_text().splitlines().index("metadata: {name: last}") + 4),
    ]
    assert f"error: {path}:" in printed.err


def test_yaml_that_does_not_parse_is_never_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.joinpath("good.yaml").write_text(_BURST.format(name="good"))
    tmp_path.joinpath("bad.yaml").write_text("a: [1, 2\n")
    assert run(["lint", "-f", str(tmp_path)]) == ERROR
    assert f"error: {tmp_path / 'bad.yaml'}:2:1: " in capsys.readouterr().err


def test_limit_ranges_count_for_the_sound_objects_of_broken_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The pod is valid only with the default limit of the range: requests of huge pages need limits.
    limits = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec: {limits: [{type: Container, default: {memory: 1Gi}}]}\n"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: x, resources: {limits: {hugepages-2Mi: 2Mi}}}]}\n"
    path = tmp_path / "all.yaml"
    path.write_text(f"{pod}---\n{limits}---\na: [1, 2\n")
    assert run(["lint", "-f", str(path)]) == ERROR
    printed = capsys.readouterr()
    assert "in 2 objects" in printed.out
    assert len(printed.err.splitlines()) == 1


def test_items_of_a_list_are_sound_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "list.json"
    path.write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},'
        ' "spec": {"containers": [{"name": "a", "image": "x"}]}}, {"apiVersion": "v1", "kind": "Pod", "spec": 1}]}'
    )
    assert run(["lint", "-f", str(path)]) == ERROR
    assert "in 1 object" in capsys.readouterr().out


def test_a_broken_profile_does_not_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\nspec: {cgroupVersion: 3}\n"
    (tmp_path / "all.yaml").write_text(f"{node}---\n{Path(SHOP).read_text()}")
    assert run(["lint", "-f", str(tmp_path)]) == ERROR
    printed = capsys.readouterr()
    assert "3 warnings in 3 objects" in printed.out
    assert "spec.cgroupVersion: Invalid value: 3: must be 1 or 2" in printed.err


def test_a_configuration_of_another_version_is_one_that_the_kubelet_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text("apiVersion: kubelet.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\nmaxPods: 5\n")
    assert run(["lint", "-f", str(config), "-o", "json"]) == NO
    [one] = json.loads(capsys.readouterr().out)["findings"]
    assert (one["rule"], one["path"], one["line"]) == ("NW301", "apiVersion", 1)


def test_kinds_of_the_same_name_in_other_groups_are_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        "apiVersion: example.com/v1\nkind: KubeletConfiguration\nmetadata: {name: a}\n---\n"
        "apiVersion: example.com/v1\nkind: NodeProfile\nmetadata: {name: a}\n"
    )
    assert run(["lint", "-f", str(other)]) == ERROR
    assert "nothing here is judged: 1 KubeletConfiguration, 1 NodeProfile" in capsys.readouterr().err


def test_nothing_but_broken_files_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("replicas: 3\n")
    assert run(["lint", "-f", str(broken)]) == ERROR
    assert capsys.readouterr().out == ""


def test_findings_in_a_profiles_configuration_have_its_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(Path("examples/nodes/worker.yaml").read_text())
    document["spec"]["kubeletConfiguration"]["memorySwap"] = {"swapBehavior": "LimitedSwap"}
    node = tmp_path / "node.yaml"
    node.write_text(yaml.safe_dump(document))
    for arguments in (["-f", SHOP, "--node", str(node)], ["-f", str(node)]):
        assert run(["lint", *arguments, "--only", "NW317", "-o", "json"]) == YES
        [one] = json.loads(capsys.readouterr().out)["findings"]
        assert one["path"] == "spec.kubeletConfiguration.memorySwap"
        assert node.read_text().splitlines()[one["line"] - 1].strip() == "memorySwap:"


def test_a_kubelet_that_does_not_start_judges_no_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kubelet.yaml"
    for fields, rule in (("maxPods: -1", "NW301"), ("cpuManagerPolicy: static", "NW304")):
        config.write_text(
            f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}\n"
        )
        arguments = ["lint", "-f", SHOP, "--node", "vm-4", "--kubelet-config", str(config), "-o", "json"]
        assert run([*arguments, "--disable", "NW101,NW102,NW110"]) == NO
        document = json.loads(capsys.readouterr().out)
        assert [finding["rule"] for finding in document["findings"]] == [rule]
        assert "NW201" not in document["rules"]


def test_pods_in_the_folder_of_static_pods_are_static(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "etc" / "kubernetes" / "manifests"
    folder.mkdir(parents=True)
    (folder / "etcd.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec:\n  priorityClassName: system-node-critical\n"
        "  containers:\n  - {name: etcd, image: example.com/etcd}\n"
    )
    assert run(["lint", "-f", str(folder), "-o", "json", "--disable", "NW118"]) == YES
    assert [finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]] == ["NW117"]
