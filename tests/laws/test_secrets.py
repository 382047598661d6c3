"""Captured profiles and journals hold no secrets of pods, and decide as if they did."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodewright.cli.app import run
from nodewright.documents.formats.decode import decode
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.secret_fields import without_secret_fields
from nodewright.predict.node import Node
from nodewright.testing.strategies import pods

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKER = EXAMPLES / "worker-3"
SECRET = "hunter2"  # noqa: S105 - what must not appear
PROBE = {
    "exec": {"command": ["sh", "-c", SECRET]},
    "httpGet": {
        "path": f"/{SECRET}",
        "port": 80,
        "httpHeaders": [{"name": "Authorization", "value": SECRET}],
    },
}
ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration": SECRET,
    "kubernetes.io/config.source": "api",
    "nodewright.dev/topology-policy": "restricted",
}
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def with_secrets(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with a secret in each field that may hold one."""
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod["spec"].get(field, ()):
            container |= {
                "env": [
                    {"name": "A", "value": SECRET},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "args": [SECRET],
                "command": [SECRET],
            }
            if field == "containers":
                probes = {
                    key: {"exec": PROBE["exec"]}
                    for key in ("livenessProbe", "readinessProbe", "startupProbe")
                }
                container.update(probes | {"lifecycle": {"preStop": {"httpGet": PROBE["httpGet"]}}})
    meta = pod.setdefault("metadata", {})
    profiles = {f"{_APPARMOR}{container['name']}": "unconfined" for container in pod["spec"]["containers"]}
    meta["annotations"] = {**meta.get("annotations", {}), **ANNOTATIONS, **profiles}
    pod["spec"]["volumes"] = [
        *pod["spec"].get("volumes", ()),
        {"name": "csi", "csi": {"driver": "a.b", "volumeAttributes": {"key": SECRET}}},
    ]
    for statuses in (
        pod.get("status", {}).get(field, ()) for field in ("containerStatuses", "initContainerStatuses")
    ):
        for status in statuses:
            status["lastState"] = {"terminated": {"exitCode": 1, "message": SECRET}}
    return pod


def profile_of(document: dict[str, Any]) -> Node:
    """The node of a profile's document."""
    return Node.from_profile(decode(document, NodeProfile), source="profile")


WORKER_PROFILE = yaml.safe_load((EXAMPLES / "nodes" / "worker.yaml").read_text("utf-8"))


@given(st.lists(pods(), max_size=3), st.lists(pods(), min_size=1, max_size=3))
def test_a_node_decides_the_same_without_the_secrets_of_its_pods(there: list[Pod], new: list[Pod]) -> None:
    documents = [with_secrets(plain_value(object_document(pod))) for pod in there]
    for number, document in enumerate(documents):
        document["metadata"] = {**document["metadata"], "name": f"there-{number}", "uid": str(number)}
    profile = {**WORKER_PROFILE, "spec": {**WORKER_PROFILE["spec"], "pods": documents}}
    cleaned = without_secret_fields(profile)
    assert SECRET not in json.dumps(cleaned)
    node, same = profile_of(profile), profile_of(cleaned)
    for pod in new:
        answer, other = node.admit(pod), same.admit(pod)
        assert (answer.decision, answer.kubelet, answer.because) == (
            other.decision,
            other.kubelet,
            other.because,
        )
        node, same = answer.node, other.node


def test_what_decides_stays() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    assert without_secret_fields(pod) == pod
    cleaned = without_secret_fields(with_secrets(json.loads(json.dumps(pod))))
    expected = {key: value for key, value in ANNOTATIONS.items() if value != SECRET}
    assert cleaned["metadata"]["annotations"] == expected | {f"{_APPARMOR}a": "unconfined"}
    assert cleaned["spec"]["containers"][0]["env"] == [
        {"name": "A"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]


@pytest.fixture
def cluster(tmp_path: Path) -> tuple[str, ...]:
    """A capture of a cluster's objects in which pods and the kubelet's configuration hold secrets."""
    listed = json.loads((WORKER / "pods.json").read_text("utf-8"))
    listed["items"] = [with_secrets(pod) for pod in listed["items"]]
    (tmp_path / "pods.json").write_text(json.dumps(listed))
    configz = json.loads((WORKER / "configz.json").read_text("utf-8"))
    configz["kubeletconfig"]["staticPodURL"] = f"http://user:{SECRET}@manifests/"
    configz["kubeletconfig"]["staticPodURLHeader"] = {"Authorization": [SECRET]}
    (tmp_path / "configz.json").write_text(json.dumps(configz))
    files = {"--configz": tmp_path / "configz.json", "--pods": tmp_path / "pods.json"}
    files |= {"--node-object": WORKER / "node.json", "--nrt": WORKER / "topology.yaml"}
    return tuple(str(word) for pair in files.items() for word in pair)


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_a_capture_leaves_secrets_out(
    output: str, cluster: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "capture", *cluster, "-o", output]) == 0
    assert SECRET not in capsys.readouterr().out
    assert run(["node", "capture", *cluster, "-o", output, "--with-secrets"]) == 0
    assert capsys.readouterr().out.count(SECRET) > 4


def test_a_capture_decides_the_same_without_secrets(
    cluster: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for options in ((), ("--with-secrets",)):
        assert run(["node", "capture", *cluster, *options]) == 0
        file = tmp_path / "profile.yaml"
        file.write_text(capsys.readouterr().out)
        code = run(["admit", "--node", str(file), "-f", str(WORKER / "new-pods.yaml"), "-o", "json"])
        answers.append((code, json.loads(capsys.readouterr().out)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("options", [(), ("--with-secrets",)])
def test_a_journal_leaves_secrets_out_and_replays_the_same(options: tuple[str, ...], tmp_path: Path) -> None:
    manifests = [
        with_secrets(pod) for pod in yaml.safe_load_all((WORKER / "new-pods.yaml").read_text("utf-8"))
    ]
    manifest = tmp_path / "pods.yaml"
    manifest.write_text(yaml.safe_dump_all(manifests))
    node = ["--node", str(EXAMPLES / "nodes" / "worker.yaml")]
    journal, again = tmp_path / "journal.json", tmp_path / "again.json"
    journal.write_text("")
    journal.chmod(0o644)
    code = run(["admit", *node, "-f", str(manifest), "--journal", str(journal), *options])
    assert run(["replay", str(journal), "--journal", str(again), *options]) == code
    for file in (journal, again):
        assert (SECRET in file.read_text("utf-8")) == bool(options)
        assert file.stat().st_mode & 0o777 == 0o600
