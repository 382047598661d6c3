"""The kustomize base and the Helm chart: their objects are valid, equal, and start commands with options that exist."""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.real_api_server import ASSETS, real_api_server

from nodewright.cli.app import COMMANDS, load_command
from nodewright.cluster.serving.access import read_tokens
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


CERTIFICATE = {"certificateSecret": "nodewright-extender-tls"}


REQUIRED = {"extender": CERTIFICATE, "image": {"repository": "registry.invalid/nodewright"}}
EVERYTHING = {
    "export": {"publish": True, "certificateSecret": "nodewright-export-tls"},
    "monitoring": {"enabled": True},
    "webhook": {"enabled": True},
    "token": "t",
}


def helm() -> Any:
    """Helm's own code; skips the test where it is not installed."""
    try:
        return importlib.import_module("helm_python.chart")
    except ImportError:
        pytest.skip("no Helm: neither the package helm-python-sdk is installed nor is there one in Debian")


def rendered(values: dict[str, Any], namespace: str = "nodewright") -> list[dict[str, Any]]:
    """The objects of the chart; skips the test where no Helm is installed."""
    with helm().Chart.load(CHART) as loaded:
        texts = loaded.render(values=REQUIRED | values, name="nodewright", namespace=namespace)
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


def test_keys_do_not_lie_where_every_user_can_replace_them() -> None:
    """A kubelet makes an emptyDir writable by all and not sticky, where the exporter refuses to keep a key."""
    [document] = documents((DEPLOYMENT / "base" / "export-daemonset.yaml").read_text("utf-8"))
    spec = document["spec"]["template"]["spec"]
    [container] = spec["containers"]
    empty = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in empty]
    [place] = [each.partition("=")[2] for each in container["args"] if each.startswith("--cert-dir=")]
    assert [path for path in mounts if Path(place).is_relative_to(path)] == []


GUIDE = ROOT / "docs" / "guide" / "deploy.md"


def described(heading: str) -> dict[str, list[str]]:
    """The words in backticks of each component's rows in the table of the guide that begins so, without its last column."""
    rows: dict[str, list[str]] = {}
    table = GUIDE.read_text("utf-8").partition(f"| Component | {heading}")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        _, component, *columns = line.split("|")
        words = re.findall(r"`([^`]+)`", " ".join(columns[:1] if heading == "Mounted" else columns))
        rows.setdefault(component.strip(" `"), []).extend(words)
    return rows


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_guide_lists_what_each_component_mounts(name: str) -> None:
    [document] = documents((DEPLOYMENT / "base" / name).read_text("utf-8"))
    [container] = document["spec"]["template"]["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    if name.startswith("export"):
        text = (DEPLOYMENT / "components/monitoring/kustomization.yaml").read_text("utf-8")
        mounts += re.findall(r"mountPath: ([^,]+)", text)
    paths = [word for word in described("Mounted")[document["metadata"]["name"]] if word.startswith("/")]
    assert sorted(paths) == sorted(mounts)


@pytest.mark.parametrize("name", ["export", "extender"])
def test_the_guide_lists_what_each_component_answers_and_calls(name: str) -> None:
    workload = next(path for path in WORKLOADS if path.startswith(name))
    [document] = documents((DEPLOYMENT / "base" / workload).read_text("utf-8"))
    [container] = document["spec"]["template"]["spec"]["containers"]
    [policy] = documents((DEPLOYMENT / "base" / f"{name}-networkpolicy.yaml").read_text("utf-8"))
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert all(rule["ports"] for rule in (*policy["spec"]["ingress"], *policy["spec"]["egress"]))
    ports = [port["containerPort"] for port in container["ports"]]
    ports += [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    if name == "export":
        text = (DEPLOYMENT / "components/publish/kustomization.yaml").read_text("utf-8")
        ports += map(int, re.findall(r"port: (\d+)", text))
    listed = [int(word) for word in described("Answers")[f"nodewright-{name}"] if word.isdigit()]
    assert sorted(listed) == sorted(ports)


RECORD_FILES = """
import sys
root, places = sys.argv.pop(1), set()
def record(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(root):
        places.add(f"{event} {str(arguments[0]).removeprefix(root + '/')}")
sys.addaudithook(record)
from nodewright.cli.app import run
run(sys.argv[1:])
print("\\n".join(sorted(places)), file=sys.stderr)
"""


def test_the_exporter_reads_nothing_that_is_hidden(tmp_path: Path) -> None:
    [document] = documents((DEPLOYMENT / "base" / WORKLOADS[0]).read_text("utf-8"))
    mounts = document["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    hidden = {Path(mount["mountPath"]).name for mount in mounts if mount["name"] == "hidden"}
    # What a kubelet makes, and where it keeps its keys, but for what is read.
    assert hidden == {"checkpoints", "pki", "plugins", "plugins_registry", "pods"}
    for name in (*hidden, "device-plugins", "pod-resources"):
        tmp_path.joinpath(name).mkdir()
    root = str(tmp_path)
    command = [sys.executable, "-c", RECORD_FILES, root, "export", "--once", "--kubelet-root", root]
    ran = subprocess.run([*command, "--node-name=n"], capture_output=True, text=True, check=False)
    lines = (line.split(" ") for line in ran.stderr.splitlines() if line.count(" ") == 1)
    places = {place: event for event, place in lines}
    # Only the names in there, which the exporter does without.
    assert places.pop("pods") in {"os.listdir", "os.scandir"}  # as the release of Python has it
    assert "cpu_manager_state" in places
    assert {place.partition("/")[0] for place in places} & hidden == set()
    guide = GUIDE.read_text("utf-8")
    assert [place for place in places if f"`{place}`" not in guide] == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_tokens_of_service_accounts_end_after_an_hour(name: str) -> None:
    [document] = documents((DEPLOYMENT / "base" / name).read_text("utf-8"))
    spec = document["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    [access] = [volume["projected"] for volume in spec["volumes"] if "projected" in volume]
    [token] = [
        source["serviceAccountToken"] for source in access["sources"] if "serviceAccountToken" in source
    ]
    # With 3607 the API server makes it a year.
    assert token["expirationSeconds"] == 3600


def test_nothing_that_is_packaged_goes_unverified() -> None:
    unsafe = re.compile(r"insecure|SkipVerify|skip.tls|curl .*-k\b|--no-check", re.IGNORECASE)
    lines = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in (ROOT / "packaging").rglob("*")
        if path.is_file() and path.suffix != ".lock" and path.parent.name != "man"
        for line in path.read_text("utf-8").splitlines()
        if unsafe.search(line)
    ]
    assert lines == []


def test_every_extender_authenticates_its_callers_and_the_scheduler_itself() -> None:
    [document] = documents((DEPLOYMENT / "base" / WORKLOADS[1]).read_text("utf-8"))
    spec = document["spec"]["template"]["spec"]
    [container] = spec["containers"]
    [tls] = [volume["secret"] for volume in spec["volumes"] if volume["name"] == "tls"]
    assert "--client-ca-file=/etc/nodewright-tls/ca.crt" in container["args"]
    assert {"key": "ca.crt", "path": "ca.crt"} in tls["items"]
    assert "optional" not in tls
    [configuration] = documents((DEPLOYMENT / "scheduler-configuration.yaml").read_text("utf-8"))
    assert configuration["extenders"][0]["tlsConfig"].keys() == {"caFile", "certFile", "keyFile"}


@pytest.mark.slow
def test_the_certificates_of_the_guide_are_for_their_purposes(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    script = GUIDE.read_text("utf-8").partition("```sh\n")[2].partition("```")[0]
    calls = 'kubectl() { echo "$*" >> calls; }\n'
    made = subprocess.run(
        ["sh", "-euc", calls + script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert "token=" not in (tmp_path / "calls").read_text()
    for name, purpose in (("extender", "sslserver"), ("export", "sslserver"), ("scheduler", "sslclient")):
        verified = ["openssl", "verify", "-CAfile", "ca.crt", "-purpose", purpose, f"{name}.crt"]
        assert subprocess.run(verified, cwd=tmp_path, capture_output=True, check=False).returncode == 0
        other = "sslclient" if purpose == "sslserver" else "sslserver"
        verified[5] = other
        assert subprocess.run(verified, cwd=tmp_path, capture_output=True, check=False).returncode != 0
        assert tmp_path.joinpath(f"{name}.key").stat().st_mode & 0o077 == 0
    owners = read_tokens((tmp_path / "tokens.csv").read_bytes(), "tokens.csv")
    assert [owner.groups for owner in owners.values()] == [("nodewright-readers",)]
    assert list(owners) == [hashlib.sha256((tmp_path / "token").read_bytes()).digest()]


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
    assert container["image"] == f"registry.invalid/nodewright:{__version__}"
    assert "--publish=annotation" in container["args"]
    assert {document["metadata"].get("namespace", "nodewright") for document in objects} == {"nodewright"}


def test_the_chart_has_the_objects_of_the_base(tmp_path: Path) -> None:
    objects = rendered(EVERYTHING)
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


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["required", "everything"])
def test_helm_lint_has_no_warning(values: dict[str, Any]) -> None:
    report = helm().lint(CHART, values=REQUIRED | values, strict=True)
    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    # The chart has no icon: nothing is published that it could name.
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


def test_a_chart_without_options_is_smaller() -> None:
    small = {
        kind for kind, _ in names(rendered({"networkPolicy": {"enabled": False}, "existingSecret": "mine"}))
    }
    assert not small & {"Secret", "NetworkPolicy", "ServiceMonitor", "ValidatingAdmissionPolicy"}


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"extender": {}}, "extender.certificateSecret"),
        ({"extender": {"certificateSecret": ""}}, "extender.certificateSecret"),
        ({"monitoring": {"enabled": True}}, "export.certificateSecret"),
    ],
)
def test_the_chart_is_not_rendered_without_certificates(values: dict[str, Any], missing: str) -> None:
    assert rendered({}) != []
    with pytest.raises(Exception, match=missing):
        rendered(values)


def test_values_that_look_like_numbers_or_syntax_stay_texts() -> None:
    odd = "/var/lib/kube: let #1"
    values = {
        "existingSecret": "0x10",
        "image": {"repository": "1.5", "tag": "1e3", "pullPolicy": "null"},
        "imagePullSecrets": [{"name": "08"}],
        "extender": {"certificateSecret": "1_000", "extraArgs": ["7"]},
        "export": {"publish": True, "certificateSecret": "12:30", "kubeletRoot": odd},
        "webhook": {"enabled": True, "failurePolicy": "no", "caBundle": "1e10"},
        "monitoring": {"enabled": True},
    }
    objects = rendered(values, namespace="123")
    assert {document["metadata"].get("namespace", "123") for document in objects} == {"123"}
    texts = list(leaves(objects))
    for text in ("0x10", "1.5:1e3", "null", "08", "1_000", "7", "12:30", "no", "1e10", odd, f"{odd}/pods"):
        assert text in texts
    assert 'request.userInfo.username == "system:serviceaccount:123:nodewright-export"' in texts
    accounts = [subject for document in objects for subject in document.get("subjects", ())]
    assert {account["namespace"] for account in accounts} == {"123"}


def leaves(value: Any) -> Iterator[Any]:
    """The values in lists and mappings."""
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from leaves(child)
    else:
        yield value


def test_the_webhook_of_the_chart_can_deny() -> None:
    webhook = {
        "enabled": True,
        "deny": True,
        "failurePolicy": "Fail",
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
