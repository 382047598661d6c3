"""Loads the pods of custom resources as workloads."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from nodewright.documents.formats.custom_resources import PARAMETER, CustomPod, custom_pods, template_paths
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.model.errors import Fault

if TYPE_CHECKING:
    from nodewright.documents.formats.manifests import ManifestLoader

_POD_TEMPLATE_LABEL = re.compile(r"PodTemplate \S+$")
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")


def add_custom_pods(loader: "ManifestLoader", value: dict[str, Any], location: ObjectLocation) -> bool:
    """Adds the pods of a custom resource to the workloads; adds warnings about pods that are not judged.

    Returns whether it has pods that are judged.
    """
    group = value["apiVersion"].rpartition("/")[0]
    pods = custom_pods(value, group, loader.selection.custom_kinds)
    if pods is None:
        loader.warnings += _unknown_templates(value, location)
        return False
    if pods and not loader.judges_templates:
        loader.warnings.append(f"{location.label}: the pods of its templates are not counted")
        return False
    judged = 0
    for pod in pods:
        field = _field_with_parameters(pod.template.get("spec"))
        if field is None:
            _add_pod(loader, value, location, pod)
            judged += 1
        else:
            loader.warnings.append(
                f"{location.label}: {pod.path} has parameters in {field}, so its pods are not judged"
            )
    return judged > 0


def _unknown_templates(value: dict[str, Any], location: ObjectLocation) -> Iterator[str]:
    for path in template_paths(value):
        yield (
            f"{location.label}: the pods of its template {path} are not judged; "
            f"--template-path '{value['kind']}={path}' judges them"
        )


def _field_with_parameters(spec: Any) -> str | None:
    """The first field with parameters that the verdict may depend on."""
    if not isinstance(spec, dict):
        return None
    for name, item in spec.items():
        if name in _CONTAINER_LISTS:
            if any(PARAMETER in _json(container.get("resources")) for container in _mappings(item)):
                return "resources"
        elif name != "volumes" and PARAMETER in _json(item):
            return str(name)
    return None


def _mappings(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _add_pod(
    loader: "ManifestLoader", value: dict[str, Any], location: ObjectLocation, pod: CustomPod
) -> None:
    """Adds a template as a PodTemplate, and names the pod's real owner."""
    meta = value.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    stem = str(meta.get("name") or meta.get("generateName") or value["kind"].lower())
    name = "-".join(filter(None, (stem.rstrip("-."), pod.suffix.lower())))
    path = pod.path.rpartition(".")[0] if pod.path.endswith(".template") else pod.path
    prefix = ".".join(filter(None, (location.prefix, path)))
    count, first_fault = len(loader.workloads), len(loader.faults)
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, **({"namespace": meta["namespace"]} if meta.get("namespace") else {})},
        "template": pod.template,
    }
    loader.add_object(template, replace(location, prefix=prefix))
    loader.faults[first_fault:] = _in_custom_resource(loader.faults[first_fault:], location.label, pod.path)
    for number in range(count, len(loader.workloads)):
        read = loader.workloads[number]
        pod_meta = read.workload.pod.metadata
        owner = replace(
            pod_meta.owner_references[0], api_version=value["apiVersion"], kind=value["kind"], name=stem
        )
        owned = replace(read.workload.pod, metadata=replace(pod_meta, owner_references=(owner,)))
        workload = replace(
            read.workload,
            api_version=value["apiVersion"],
            kind=value["kind"],
            name=stem,
            replicas=pod.replicas,
            pod=owned,
        )
        loader.workloads[number] = replace(read, workload=workload)


def _in_custom_resource(faults: Iterable[Fault], label: str, path: str) -> Iterator[Fault]:
    """The faults of a PodTemplate with the label and the path of the object that has the template."""
    for fault in faults:
        place = fault.path.removeprefix("template")
        yield replace(
            fault,
            source=_POD_TEMPLATE_LABEL.sub(lambda _: label, fault.source),
            path=fault.path if place == fault.path else f"{path}{place}",
        )
