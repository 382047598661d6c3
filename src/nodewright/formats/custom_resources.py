"""Loads the pods of custom resources as workloads."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from nodewright.formats.custom_templates import CustomPod, custom_pods, template_paths
from nodewright.formats.object_location import ObjectLocation

if TYPE_CHECKING:
    from nodewright.formats.manifests import ManifestLoader

_PARAMETER = "{{"


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
    judged = [pod for pod in pods if not _has_parameters(pod)]
    loader.warnings += [
        f"{location.label}: the resources in {pod.path} are parameters, so its pods are not judged"
        for pod in pods
        if _has_parameters(pod)
    ]
    for pod in judged:
        _add_pod(loader, value, location, pod)
    return bool(judged)


def _unknown_templates(value: dict[str, Any], location: ObjectLocation) -> Iterator[str]:
    for path in template_paths(value):
        yield (
            f"{location.label}: the pods of its template {path} are not judged; "
            f"--template-path '{value['kind']}={path}' judges them"
        )


def _has_parameters(pod: CustomPod) -> bool:
    spec = pod.template.get("spec")
    containers = [
        container
        for name in ("containers", "initContainers")
        for container in (spec.get(name) if isinstance(spec, dict) else None) or ()
        if isinstance(container, dict)
    ]
    return any(_PARAMETER in json.dumps(container.get("resources"), default=str) for container in containers)


def _add_pod(
    loader: "ManifestLoader", value: dict[str, Any], location: ObjectLocation, pod: CustomPod
) -> None:
    """Adds a template as a PodTemplate, and names the pod's real owner."""
    meta = value.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    stem = str(meta.get("name") or meta.get("generateName") or "")
    name = f"{stem.rstrip('-')}-{pod.suffix.lower()}" if pod.suffix else stem
    path = pod.path.rpartition(".")[0] if pod.path.endswith(".template") else pod.path
    prefix = ".".join(filter(None, (location.prefix, path)))
    count = len(loader.workloads)
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, **({"namespace": meta["namespace"]} if meta.get("namespace") else {})},
        "template": pod.template,
    }
    loader.add_object(template, replace(location, prefix=prefix))
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
