"""Manifests and nodes from whatever Python code holds: paths, text, mappings, and objects of Kubernetes clients."""

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.manifests import ManifestLoader, load_files
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.python_objects import ManifestSource, files_and_objects, is_text, mapping_of
from nodewright.documents.profiles.node_profiles import (
    find_profile,
    load_profile,
    profile_from_bytes,
    profile_from_document,
)
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod


def load_pods(*sources: ManifestSource, namespace: str = "default") -> tuple[Pod, ...]:
    """The pods in manifests: each Pod, and one pod for every object that creates pods.

    A source is a path, a text, a mapping, or an object of a Kubernetes client.
    Errors: InputError with all faults.

    >>> container = {"name": "c", "image": "i"}
    >>> pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    >>> [pod.full_name for pod in load_pods(pod, namespace="shop")]
    ['shop/a']
    """
    loading = ManifestLoader(namespace)
    add_sources(loading, sources)
    return tuple(workload.pod for workload in loading.result().workloads)


def add_sources(loading: ManifestLoader, sources: tuple[ManifestSource, ...]) -> None:
    """Adds the objects of the sources to those that are loaded."""
    for source in files_and_objects(sources):
        if isinstance(source, str):
            load_files(loading, [source])
            continue
        name, value = source
        if isinstance(value, bytes):
            loading.add_file(InputFile(name, value))
        else:
            loading.add_object(value, _location(name, value))


def _location(name: str, value: Mapping[str, Any]) -> ObjectLocation:
    return ObjectLocation(name, json.dumps(value).encode(), 1, 1)


def profile_of(reference: "ManifestSource | NodeProfile | None") -> NodeProfile:
    """The NodeProfile that code holds; a string that is no text is a path or a name of the catalogue; None: this machine.

    Errors: InputError with all faults of the profile; HostError if this machine cannot be read.
    """
    if isinstance(reference, NodeProfile):
        return reference
    if isinstance(reference, PathLike):
        return load_profile(str(reference))
    if reference is None or (isinstance(reference, str) and not is_text(reference)):
        return find_profile(reference)
    if isinstance(reference, str | bytes):
        content = reference.encode() if isinstance(reference, str) else reference
        return profile_from_bytes(content, "text")
    value = mapping_of(reference)
    return profile_from_document(value, _location("mapping", value))
