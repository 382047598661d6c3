import json
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, UNSCHEDULABLE, USAGE, YES

WORKER = "examples/nodes/worker.yaml"
PODS = "examples/admission"


def pod(name: str, cpu: str, *, kind: str = "Pod") -> str:
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    if kind == "Pod":
        return yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    whole = {"selector": {"matchLabels": labels}, "template": template}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole})


def test_all_pods_in_means_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(pod("web", "1"))
    assert run(["admit", "-f", str(manifest), "--node", WORKER, "-o", "name"]) == YES
    assert capsys.readouterr().out == "pod/web\n"


def test_one_pod_out_means_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", "-f", PODS, "--node", WORKER, "-o", "name"]) == NO
    assert capsys.readouterr().out == "pod/web\npod/agent\npod/idler\n"


def test_each_pod_can_be_judged_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "pods.yaml"
    manifest.write_text("---\n".join([pod("a", "1"), pod("b", "1"), pod("c", "300")]))
    query = ["admit", "-f", str(manifest), "--node", WORKER]
    assert run([*query, "-o", "name"]) == NO
    assert capsys.readouterr().out == "pod/a\n"
    assert run([*query, "--each", "-o", "name"]) == NO
    assert capsys.readouterr().out == "pod/a\npod/b\n"
    assert run([*query, "--each"]) == NO
    assert "each pod alone, beside 2 pods of the node" in capsys.readouterr().out
    assert run([*query, "--each", "-o", "json"]) == NO
    assert json.loads(capsys.readouterr().out)["eachAlone"] is True
    manifest.write_text("---\n".join([pod("a", "1"), pod("b", "1")]))
    assert run([*query, "--each"]) == YES
    for other in (["--resize"], ["--serve"], ["--journal", str(tmp_path / "j.yaml")]):
        assert run([*query, "--each", *other]) == USAGE


def test_objects_of_the_creation_are_named_in_the_wide_output_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: 1, globalDefault: true}"
    manifest = tmp_path / "pods.yaml"
    manifest.write_text(f"{pod('a', '1')}---\n{low}")
    query = ["admit", "-f", str(manifest), "--node", WORKER]
    for output, is_named in (([], False), (["-o", "wide"], True)):
        assert run([*query, *output]) == YES
        assert ("applied at its creation: PriorityClass low" in capsys.readouterr().out) is is_named


def test_json_and_yaml_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    run(["admit", "-f", PODS, "--node", WORKER, "-o", "json"])
    as_json = json.loads(capsys.readouterr().out)
    run(["admit", "-f", PODS, "--node", WORKER, "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json["rulesOf"] == "1.36"
    assert [pod["verdict"] for pod in as_json["pods"]] == [
        "admitted",
        "refused",
        "refused",
        "admitted",
        "admitted",
    ]
    assert as_json["pods"][1]["reason"] == "OutOfcpu"
    assert [each["name"] for each in as_json["pods"][3]["preempted"]] == ["batch"]
    assert as_json["remaining"]["cpu"] == "500m"


def test_wide_shows_the_origin_of_a_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "deployment.yaml"
    manifest.write_text(pod("web", "1", kind="Deployment"))
    assert run(["admit", "-f", str(manifest), "--node", WORKER, "-o", "wide"]) == YES
    assert "Deployment web" in capsys.readouterr().out


def profile(tmp_path: Path, **spec: object) -> str:
    document = yaml.safe_load(Path(WORKER).read_text())
    document["spec"] |= spec
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_release_without_its_own_rules_warns_and_fails_under_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = profile(tmp_path, kubernetesVersion="v1.31.4")
    assert run(["admit", "-f", PODS, "--node", node, "-o", "json"]) == NO
    captured = capsys.readouterr()
    assert "Kubernetes v1.31.4 has no rules of its own here" in captured.err
    assert json.loads(captured.out)["rulesOf"] == "1.32"
    assert run(["admit", "-f", PODS, "--node", node, "--strict"]) == ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: Kubernetes v1.31.4 has no rules of its own here")


def test_input_without_pods_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    assert run(["admit", "-f", str(empty), "--node", WORKER]) == ERROR
    assert capsys.readouterr().err == "error: no objects passed to admit\n"


def test_an_invalid_version_is_an_error_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["admit", "-f", PODS, "--node", profile(tmp_path, kubernetesVersion="latest")]) == ERROR
    assert 'spec.kubernetesVersion: Invalid value: "latest"' in capsys.readouterr().err


def test_a_kubelet_configuration_can_be_tried_on_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 2\nmaxPod: 3\n"
    )
    assert run(["admit", "-f", PODS, "--node", WORKER, "--kubelet-config", str(config)]) == NO
    captured = capsys.readouterr()
    assert 'unknown field "maxPod"' in captured.err
    assert "OutOfpods" in captured.out


def test_a_configuration_that_contradicts_itself_stops_with_the_kubelets_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = profile(
        tmp_path, kubeletConfiguration={"maxPods": -1, "reservedSystemCPUs": "9", "podsPerCore": -2}
    )
    assert run(["admit", "-f", PODS, "--node", node]) == ERROR
    errors = capsys.readouterr().err
    assert "maxPods" in errors
    assert "podsPerCore" in errors


def test_unknown_facts_are_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load(pod("web", "1"))
    document["spec"]["securityContext"] = {"appArmorProfile": {"type": "RuntimeDefault"}}
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert run(["admit", "-f", str(manifest), "--node", WORKER]) == NO
    assert "undecided" in capsys.readouterr().out


def test_a_node_with_over_reservation_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = profile(tmp_path, kubeletConfiguration={"systemReserved": {"cpu": "5"}})
    assert run(["admit", "-f", PODS, "--node", node]) == ERROR
    assert "the kubelet does not start: invalid Node Allocatable configuration" in capsys.readouterr().err


def test_holders_of_missing_cpus_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = {"cpu": "2", "memory": "64Mi"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": whole}}]},
        }
        for name in ("first", "second")
    ]
    manifest, config = tmp_path / "pods.yaml", tmp_path / "kubelet.yaml"
    manifest.write_text(yaml.safe_dump_all(pods))
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\n"
    )
    node = ["--node", "uma-4c", "--kubelet-config", str(config), "-o", "json"]
    assert run(["admit", "-f", str(manifest), *node]) == NO
    refused = json.loads(capsys.readouterr().out)["pods"][1]
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert "default/first" in refused["why"][0]


GPU_POD = """apiVersion: v1
kind: Pod
metadata: {name: gpu}
spec: {containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


@pytest.mark.parametrize("arguments", [("admit",), ("admit", "-o", "wide"), ("explain",)])
def test_resources_that_the_node_does_not_have_are_named(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text(GPU_POD)
    assert run([*arguments, "-f", str(path), "--node", "vm-4"]) == UNSCHEDULABLE
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "nvidia.com/gpu: 1 requested, the node does not offer it; its kubelet would ignore the request"
        in shown
    )


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_reports_list_the_resources_that_the_node_does_not_have(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text(GPU_POD)
    assert run([command, "-f", str(path), "--node", "vm-4", "-o", "json"]) == UNSCHEDULABLE
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    assert pod["unknownResources"] == [{"resource": "nvidia.com/gpu", "requested": 1}]


def test_a_kustomization_alone_names_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kustomization = "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [a.yaml]}"
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    assert run(["admit", "-f", str(tmp_path), "--node", WORKER]) == ERROR
    assert "no pods found; use -k DIR for kustomizations" in capsys.readouterr().err
