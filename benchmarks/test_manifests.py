"""How long manifests take to read."""

import json
from typing import Any

from nodewright.documents.formats.decode import schema_faults
from nodewright.documents.formats.kubectl_yaml import read_yaml
from nodewright.documents.formats.manifests import workloads_from
from tools.source import ROOT

DEPLOYMENT = (ROOT / "examples/manifests/mesh-checkout.yaml").read_bytes()
POD = json.loads((ROOT / "examples/manifests/list.json").read_text("utf-8"))["items"][0]
LIST = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [POD] * 100}).encode()


def test_a_deployment_of_a_service_in_a_mesh(benchmark: Any) -> None:
    assert benchmark(workloads_from, DEPLOYMENT, "mesh.yaml").workloads


def test_the_yaml_of_it_alone(benchmark: Any) -> None:
    assert benchmark(read_yaml, DEPLOYMENT.decode(), "mesh.yaml")


def test_the_fields_of_a_live_pod(benchmark: Any) -> None:
    assert benchmark(schema_faults, POD, "Pod") == []


def test_a_hundred_live_pods_as_kubectl_prints_them(benchmark: Any) -> None:
    assert len(benchmark(workloads_from, LIST, "pods.json").workloads) == 100
