"""Family pod-defaults: the API server's defaults for a pod's resources."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.requests.qos_and_priority import qos_class
from nodewright.engine.core.requests.resource_defaults import with_defaults, with_pod_level_defaults
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vectors import amount_texts, plain_resources, question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The pod's resources after defaulting."""
    gates = question_gates(question, release)
    pod = with_pod_level_defaults(with_defaults(decode(question["pod"], Pod), gates), gates)
    spec = pod.spec
    defaulted: dict[str, Any] = {
        "containers": {each.name: plain_resources(each.resources) for each in spec.containers},
        "initContainers": {each.name: plain_resources(each.resources) for each in spec.init_containers},
        "qosClass": qos_class(pod, gates.pod_level_qos).value,
    }
    if spec.resources is not None:
        defaulted["podResources"] = plain_resources(spec.resources)
    if spec.overhead:
        defaulted["overhead"] = amount_texts(spec.overhead)
    return defaulted
