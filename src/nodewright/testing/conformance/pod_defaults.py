"""Family pod-defaults: what the API server fills into a pod's resources."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.requests import qos_class, with_defaults
from nodewright.model.objects import Pod, ResourceRequirements
from nodewright.testing.conformance.amounts import texts
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The pod's resources after defaulting."""
    del machines
    pod = with_defaults(decode(question["pod"], Pod))
    spec = pod.spec
    found: dict[str, Any] = {
        "containers": {each.name: _resources(each.resources) for each in spec.containers},
        "initContainers": {each.name: _resources(each.resources) for each in spec.init_containers},
        "qosClass": qos_class(pod).value,
    }
    if spec.resources is not None:
        found["podResources"] = _resources(spec.resources)
    if spec.overhead:
        found["overhead"] = texts(spec.overhead)
    return found


def _resources(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    lists = {"requests": texts(resources.requests), "limits": texts(resources.limits)}
    return {name: texts for name, texts in lists.items() if texts}
