"""The kustomize base and the Helm chart: their objects are valid, equal, and start commands with options that exist."""

import importlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.real_api_server import ASSETS, real_api_server

from nodewright.cli.app import COMMANDS, load_command
from nodewright.documents.formats.decode import schema_faults
from nodewright.documents.formats.manifests import load_workloads
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.version import __version__
from tools.source import ROOT

DEPLOYMENT, CHART = ROOT / "packaging" / "kubernetes", ROOT / "packaging" / "helm" / "nodewright"
WORKLOADS = ("export-daemonset.yaml", "extender-deployment.yaml")
COMPONENTS = ("publish", "monitoring", "webhook")
"""The chart has them as options."""
GROUPS_WITH_DEFINITIONS = ("monitoring.coreos.com",)


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def resources(kustomization: Path) -> list[Path]:
    return [
        kustomization.parent / name for name in yaml.safe_load(kustomization.read_text("utf-8"))["resources"]
    ]


def names(objects: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((document["kind"], document["metadata"]["name"]) for document in objects)


def kustomized(folder: Path, *components: str) -> list[dict[str, Any]]:
    """The objects that `kubectl kustomize` builds; skips the test without kubectl."""
    kubectl = shutil.which("kubectl", path=os.pathsep.join(filter(None, (ASSETS, os.environ["PATH"]))))
    if kubectl is None:
        pytest.skip("no kubectl: KUBEBUILDER_ASSETS names no directory with one, nor does the PATH")
    shutil.copytree(DEPLOYMENT, folder / "kubernetes")
    overlay = folder / "kubernetes" / "overlay"
    overlay.mkdir()
    kustomization = {"resources": ["../base"], "components": [f"../components/{name}" for name in components]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = subprocess.run([kubectl, "kustomize", overlay], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return documents(built.stdout)


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of the chart; skips the test where no Helm is installed."""
    try:
        chart = importlib.import_module("helm_python").Chart
    except ImportError:
        pytest.skip("no Helm: neither the package helm-python-sdk is installed nor is there one in Debian")
    with chart.load(CHART) as loaded:
        texts = loaded.render(values=values, name="nodewright", namespace="nodewright")
    return [
        document for name, text in texts.items() if name.endswith(".yaml") for document in documents(text)
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_of_the_workloads_are_valid(name: str) -> None:
    path = DEPLOYMENT / "base" / name
    [document] = documents(path.read_text("utf-8"))
    assert schema_faults(document, document["kind"]) == []
    [workload] = load_workloads([str(path)]).workloads
    assert list(pod_violations(with_defaults(workload.pod), is_template=True)) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_containers_have_no_more_rights_than_they_need(name: str) -> None:
    [document] = documents((DEPLOYMENT / "base" / name).read_text("utf-8"))
    spec = document["spec"]["template"]["spec"]
    [container] = spec["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    host_paths = {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    assert all(mount.get("readOnly") for mount in container["volumeMounts"] if mount["name"] in host_paths)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_commands_know_the_options(name: str) -> None:
    [document] = documents((DEPLOYMENT / "base" / name).read_text("utf-8"))
    word, *options = document["spec"]["template"]["spec"]["containers"][0]["args"]
    patch = yaml.safe_load((DEPLOYMENT / "components" / "publish" / "kustomization.yaml").read_text("utf-8"))
    if word == "export":
        options += [operation["value"] for operation in yaml.safe_load(patch["patches"][0]["patch"])]
    if word not in COMMANDS:
        pytest.skip(f"this version has no command {word}")
    command = load_command(word)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {option.partition("=")[0] for option in options} - known == set()


def test_every_file_of_the_base_is_a_resource_of_it() -> None:
    for folder in (DEPLOYMENT / "base", *(DEPLOYMENT / "components" / name for name in COMPONENTS)):
        files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert {path.name for path in resources(folder / "kustomization.yaml")} == files


def test_the_scheduler_configuration_names_the_service() -> None:
    [document] = documents((DEPLOYMENT / "scheduler-configuration.yaml").read_text("utf-8"))
    [extender] = document["extenders"]
    [service] = documents((DEPLOYMENT / "base" / "extender-service.yaml").read_text("utf-8"))
    assert extender["urlPrefix"] == f"https://{service['metadata']['name']}.nodewright.svc"
    assert 443 in [port["port"] for port in service["spec"]["ports"]]


def test_kustomize_builds_the_base_with_its_components(tmp_path: Path) -> None:
    objects = kustomized(tmp_path, *COMPONENTS)
    [exporter] = [document for document in objects if document["kind"] == "DaemonSet"]
    container = exporter["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"nodewright:{__version__}"
    assert container["args"][-1] == "--publish=annotation"
    assert {document["metadata"].get("namespace", "nodewright") for document in objects} == {"nodewright"}


def test_the_chart_has_the_objects_of_the_base(tmp_path: Path) -> None:
    enabled = {"enabled": True}
    values = {"export": {"publish": True, "certificateSecret": "nodewright-export-tls"}, "extender": {"certificateSecret": "nodewright-extender-tls"}, "monitoring": enabled, "webhook": enabled, "token": "t"}
    objects = rendered(values)
    built = [document for document in kustomized(tmp_path, *COMPONENTS) if document["kind"] != "Namespace"]
    assert names(objects) == sorted([*names(built), ("Secret", "nodewright-export")])
    by_name = {(document["kind"], document["metadata"]["name"]): document for document in objects}
    for document in built:
        chart_object = by_name[document["kind"], document["metadata"]["name"]]
        if document["kind"] in ("DaemonSet", "Deployment"):
            container = chart_object["spec"]["template"]["spec"]["containers"][0]
            assert container.pop("imagePullPolicy") == "IfNotPresent"
            container["args"] = [
                text for text in container["args"] if text != "--kubelet-root=/var/lib/kubelet"
            ]
        assert chart_object == document


def test_a_chart_without_options_is_smaller() -> None:
    small = {
        kind for kind, _ in names(rendered({"networkPolicy": {"enabled": False}, "existingSecret": "mine"}))
    }
    assert not small & {"Secret", "NetworkPolicy", "ServiceMonitor", "ValidatingAdmissionPolicy"}


def test_the_webhook_of_the_chart_can_deny_and_has_a_certificate() -> None:
    webhook = {
        "enabled": True,
        "deny": True,
        "failurePolicy": "Fail",
        "certificateSecret": "cert",
        "caBundle": "QQ==",
    }
    objects = rendered({"webhook": webhook, "token": "t"})
    by_kind = {document["kind"]: document for document in objects}
    [hook] = by_kind["ValidatingWebhookConfiguration"]["webhooks"]
    assert (hook["failurePolicy"], hook["clientConfig"]["caBundle"]) == ("Fail", "QQ==")
    assert "annotations" not in by_kind["ValidatingWebhookConfiguration"]["metadata"]
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert "--deny-impossible-pods" in container["args"]
    assert schema_faults(by_kind["Deployment"], "Deployment") == []
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert f"--tls-cert-file={mounted['tls']}/tls.crt" in container["args"]
    assert {"name": "tls", "secret": {"secretName": "cert"}} in spec["volumes"]


@pytest.mark.slow
@pytest.mark.live
def test_an_api_server_takes_the_objects(tmp_path: Path) -> None:
    objects = kustomized(tmp_path, *COMPONENTS)
    if not (Path(ASSETS) / "kube-apiserver").is_file():
        pytest.skip("KUBEBUILDER_ASSETS names no directory with kube-apiserver, etcd and kubectl")
    with real_api_server(tmp_path) as server:
        served = {}
        for place in ("/api/v1", *(f"/apis/{group}" for group in api_groups(server))):
            for resource in server.request("GET", place).body.get("resources", ()):
                if "/" not in resource["name"]:
                    served[place.removeprefix("/apis/").removeprefix("/api/"), resource["kind"]] = (
                        place,
                        resource,
                    )
        for document in sorted(objects, key=lambda each: each["kind"] != "Namespace"):
            if document["apiVersion"].partition("/")[0] in GROUPS_WITH_DEFINITIONS:
                continue
            place, resource = served[document["apiVersion"], document["kind"]]
            scope = f"/namespaces/{document['metadata']['namespace']}" if resource["namespaced"] else ""
            answer = server.create(f"{place}{scope}/{resource['name']}", document)
            assert answer.code == 201, (document["kind"], answer.message)
        # The namespace is typed as a resource of its own.
        policy = (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/nodewright-export-own-node"
        )
        assert server.request("GET", policy).body["spec"]["failurePolicy"] == "Fail"


def api_groups(server: Any) -> list[str]:
    return [
        group["preferredVersion"]["groupVersion"] for group in server.request("GET", "/apis").body["groups"]
    ]
