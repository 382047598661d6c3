"""Pods one after the other on made-up machines: a real kubelet and this project decide and assign alike."""

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.made_up_nodes import MadeUpNode
from tests.support.nominal_runtime import nominal_runtime
from tests.support.real_api_server import RealAPIServer, real_api_server
from tests.support.real_kubelet import NODE, RealKubelet, lacking_kubelet

from nodewright import Node, load_pods
from nodewright.documents.profiles.state_files.checkpoints import written_state_files
from nodewright.model.errors import InputError
from nodewright.model.hardware import GIB
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import ObjectMeta

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking_kubelet()), reason=lacking_kubelet()),
]
PODS = "/api/v1/namespaces/default/pods"
POD_COUNT, PODS_TO_A_REMOVAL = 25, 5
_DECISION_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAPIServer]:
    with real_api_server(tmp_path_factory.mktemp("api-server")) as client:
        while client.request("GET", "/api/v1/namespaces/default").code != 200:
            time.sleep(0.1)
        yield client


def our_node(made_up: MadeUpNode) -> Node | None:
    """The node; None: its kubelet does not start."""
    spec = NodeProfileSpec(
        machine_info=made_up.machine,
        root_fs_capacity=100 * GIB,
        kubelet_configuration={"evictionHard": {}, **made_up.configuration},
    )
    try:
        return Node.from_profile(NodeProfile(metadata=ObjectMeta(name=NODE), spec=spec))
    except InputError:
        return None


class KubeletVerdict(NamedTuple):
    """The reason and message of a refusal; empty: the pod runs."""

    reason: str = ""
    message: str = ""


def kubelet_verdict(server: RealAPIServer, name: str, kubelet: RealKubelet) -> KubeletVerdict:
    """What the kubelet makes of the pod; its prefix of all messages is left out."""
    deadline, status = time.monotonic() + _DECISION_S, dict[str, Any]()
    while time.monotonic() < deadline:
        status = server.request("GET", f"{PODS}/{name}").body["status"]
        if status["phase"] == "Failed":
            return KubeletVerdict(status["reason"], status["message"].removeprefix("Pod was rejected: "))
        if status["phase"] == "Running":
            return KubeletVerdict()
        time.sleep(0.05)
    raise AssertionError(f"{name}: {status}\n{kubelet.log()}")


def remove_pod(server: RealAPIServer, name: str, kubelet: RealKubelet) -> None:
    """Deletes a pod, and waits until the kubelet has ended it."""
    assert server.request("DELETE", f"{PODS}/{name}").code == 200
    deadline = time.monotonic() + _DECISION_S
    while server.request("GET", f"{PODS}/{name}").code != 404:
        assert time.monotonic() < deadline, kubelet.log()
        time.sleep(0.05)


def holdings(content: bytes, uids: Collection[str]) -> dict[str, Any]:
    """What the containers of the pods hold by a state file; the kubelet writes blocks of memory in any order."""
    state = json.loads(content)
    data = state.get("data") or state
    # The CPU manager's is text, for its checksum.
    by_uid = (json.loads(data) if isinstance(data, str) else data).get("entries") or {}
    return {
        uid: {
            name: sorted(held, key=str) if isinstance(held, list) else held for name, held in by_name.items()
        }
        for uid, by_name in by_uid.items()
        if uid in uids and by_name
    }


def compare_pods(
    server: RealAPIServer, made_up: MadeUpNode, kubelet: RealKubelet, node: Node
) -> tuple[int, int]:
    """The numbers of pods that both admit and refuse."""
    admitted: dict[str, str] = {}
    refused = removed = 0
    for number, pod in enumerate(made_up.pods(POD_COUNT)):
        if number % PODS_TO_A_REMOVAL == 0 and len(admitted) > 1:
            # The kubelet forgets what the pod held at the next admission.
            uid, name = list(admitted.items())[removed % len(admitted)]
            remove_pod(server, name, kubelet)
            node = node.without_pod(uid)
            del admitted[uid]
            removed += 1
        created = server.create(PODS, pod)
        if created.code != 201:
            continue  # E.g. limits of containers above those of the pod.
        name, uid = pod["metadata"]["name"], created.body["metadata"]["uid"]
        real = kubelet_verdict(server, name, kubelet)
        (stored,) = load_pods({**created.body, "apiVersion": "v1", "kind": "Pod", "status": {}})
        result = node.admit(stored)
        assert KubeletVerdict(result.reason, result.message) == real, pod
        node = result.node
        if result.admitted:
            admitted[uid] = name
        else:
            refused += 1
        for file, content in written_state_files(node.state).contents.items():
            if file in ("cpu_manager_state", "memory_manager_state"):
                theirs = (kubelet.root / file).read_bytes()
                assert holdings(content, admitted) == holdings(theirs, admitted), (file, pod)
    return len(admitted) + removed, refused


def compare_node(server: RealAPIServer, folder: Path, seed: int) -> tuple[int, int]:
    """Compares a node; the numbers of pods that both admit and refuse."""
    made_up = MadeUpNode(seed)
    node, files = our_node(made_up), made_up.write_files(folder / "machine")
    kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
    with nominal_runtime(folder) as endpoint:
        kubelet = RealKubelet(folder, endpoint, made_up.configuration, kubeconfig=kubeconfig, machine=files)
        try:
            if node is None:
                with pytest.raises(AssertionError):
                    kubelet.start()
                return 0, 0
            kubelet.start()
            while (answer := server.request("GET", f"/api/v1/nodes/{NODE}")).code != 200:
                assert kubelet.is_running, kubelet.log()
                time.sleep(0.05)
            real = answer.body["status"]["allocatable"]
            ours = {name: str(amount.as_stored()) for name, amount in node.allocatable.items()}
            assert {**ours, "ephemeral-storage": ""} == {**real, "ephemeral-storage": ""}
            return compare_pods(server, made_up, kubelet, node)
        finally:
            for item in server.request("GET", PODS).body["items"]:
                server.request("DELETE", f"{PODS}/{item['metadata']['name']}?gracePeriodSeconds=0")
            server.request("DELETE", f"/api/v1/nodes/{NODE}")
            kubelet.close()


@pytest.mark.parametrize("seed", [103, 105])
def test_a_real_kubelet_decides_and_assigns_alike(seed: int, server: RealAPIServer, tmp_path: Path) -> None:
    admitted, refused = compare_node(server, tmp_path, seed)
    assert admitted + refused > 0
