"""The Python API: nodes and pods from whatever code holds, and answers that print and draw themselves."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Self

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
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.predict import node as engine
from nodewright.predict.explain import explanation as what_if
from nodewright.predict.explain.explanation_page import explanation_fragment
from nodewright.predict.explain.explanation_report import PodExplanation, explanation_text


class InteractiveExplanation(what_if.Explanation, frozen=True, kw_only=True):
    """Why a node admits or refuses a pod, and what would let it in."""

    def text(self, *, width: int = 80, wide: bool = False) -> str:
        """The explanation as `nodewright explain` prints it; ``wide``: with what decided nothing."""
        return explanation_text([PodExplanation(explanation=self)], width=width, wide=wide)

    def __repr__(self) -> str:
        return f"<Explanation {self.pod.full_name}: {PodExplanation(explanation=self).verdict}>"

    def _repr_html_(self) -> str:
        return explanation_fragment([PodExplanation(explanation=self)], self.step.state)


class InteractiveAdmitResult(engine.AdmitResult, frozen=True, kw_only=True):
    """The decision of a node about a pod."""

    node: "InteractiveNode"

    def _repr_html_(self) -> str:
        return explanation_fragment([], self.state_when_decided, title=repr(self).strip("<>"))


class InteractiveNode(engine.Node, frozen=True):
    """An immutable node: every decision leaves it unchanged and returns the resulting node.

    >>> node = InteractiveNode.open("uma-4c")
    >>> node
    <Node uma-4c: Kubernetes 1.36, 0 pods>
    """

    @classmethod
    def open(
        cls,
        reference: "ManifestSource | NodeProfile | None" = None,
        *,
        kubelet_config: str | None = None,
        policies: Sequence[CustomPolicy] = (),
    ) -> Self:
        """A node from a NodeProfile: its path, text or mapping; or from a catalogue name; None: this machine.

        ``kubelet_config`` names a file that replaces the profile's kubelet configuration;
        ``policies`` replace the kubelet's own, at most one of each kind.
        Errors: InputError with all faults of the profile; HostError if this machine cannot be read.
        """
        if reference is None or (isinstance(reference, str) and not is_text(reference)):
            return super().open(reference, kubelet_config=kubelet_config, policies=policies)
        return cls.from_profile(
            profile_of(reference), kubelet_config=kubelet_config, policies=policies, source="profile"
        )

    def admit(self, pod: Pod) -> InteractiveAdmitResult:
        """The decision about a pod that is assigned to the node now."""
        result = super().admit(pod)
        return InteractiveAdmitResult(**{name: getattr(result, name) for name in result.__struct_fields__})

    def admit_all(self, pods: Iterable[Pod]) -> Iterator[InteractiveAdmitResult]:
        """The decisions about the pods, each assigned after the previous one."""
        node = self
        for pod in pods:
            result = node.admit(pod)
            node = result.node
            yield result

    def explain(self, pod: Pod, *, budget: int | None = None) -> InteractiveExplanation:
        """The decision about a pod that is assigned to the node now, its reasons, and changes that would reverse a refusal.

        ``budget`` bounds the search for such changes, in decisions about pods.
        """
        result = super().explain(pod, budget=budget)
        return InteractiveExplanation(**{name: getattr(result, name) for name in result.__struct_fields__})

    def _repr_html_(self) -> str:
        return explanation_fragment([], self.state, title=repr(self).strip("<>"))


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


def profile_of(reference: "ManifestSource | NodeProfile") -> NodeProfile:
    """The NodeProfile that code holds; a string that is no text is a path or a name of the catalogue."""
    if isinstance(reference, NodeProfile):
        return reference
    if isinstance(reference, PathLike):
        return load_profile(str(reference))
    if isinstance(reference, str) and not is_text(reference):
        return find_profile(reference)
    if isinstance(reference, str | bytes):
        content = reference.encode() if isinstance(reference, str) else reference
        return profile_from_bytes(content, "text")
    value = mapping_of(reference)
    return profile_from_document(value, _location("mapping", value))
