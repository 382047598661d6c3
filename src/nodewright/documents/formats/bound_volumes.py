"""The PersistentVolumes behind the claims of pods, from claims and volumes among the objects."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.workloads import Workload
from nodewright.engine.core.predicates.scheduler_filters import BoundVolume
from nodewright.model.kubernetes.objects import NodeSelector, ObjectMeta, Pod
from nodewright.model.printable import counted

_MAX_NAMES = 3
_WITHOUT_CLAIM = ("Released", "Failed")
"""The phases of a volume that names a claim which is gone."""


class _ClaimReference(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: NodeSelector | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    claim_ref: _ClaimReference = _ClaimReference()
    node_affinity: _NodeAffinity = _NodeAffinity()
    volume_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class VolumeObjects:
    """Claims and volumes: a volume is bound to the claim that names it, or that it names."""

    def __init__(self) -> None:
        self._volume_of_claim: dict[tuple[str, str], str] = {}
        self._volume_of_reference: dict[tuple[str, str], str] = {}
        self._volumes: dict[str, NodeSelector | None] = {}
        self.used: Counter[str] = Counter()
        """Number of the objects of each kind that pods use."""

    def add(self, value: dict[str, Any], namespace: str) -> None:
        """Adds a claim or a volume.

        Errors: msgspec.ValidationError.
        """
        read = decode(value, _Object)
        if value["kind"] == "PersistentVolume":
            self._volumes[read.metadata.name] = read.spec.node_affinity.required
            if read.status.phase not in _WITHOUT_CLAIM:
                reference = read.spec.claim_ref
                self._volume_of_reference[reference.namespace, reference.name] = read.metadata.name
        else:
            claim = (read.metadata.namespace or namespace, read.metadata.name)
            self._volume_of_claim[claim] = read.spec.volume_name

    def bound(self, workloads: Iterable[Workload]) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
        """The workloads with the volumes of their pods, and a warning about volumes that are not among the objects."""
        unknown: dict[str, None] = {}
        used: set[tuple[str, ...]] = set()
        read = []
        for workload in workloads:
            volumes = []
            for claim in claim_names(workload.pod):
                key = (workload.namespace, claim)
                name = self._volume_of_claim.get(key) or self._volume_of_reference.get(key)
                if name is None:
                    continue
                used |= {key} & self._volume_of_claim.keys()
                if name not in self._volumes:
                    unknown[name] = None
                    continue
                used.add((name,))
                if (required := self._volumes[name]) is not None:
                    volumes.append(BoundVolume(claim=claim, name=name, required=required))
            read.append(replace(workload, volumes=tuple(volumes)) if volumes else workload)
        self.used = Counter(
            ["PersistentVolume" if len(key) == 1 else "PersistentVolumeClaim" for key in used]
        )
        names = ", ".join([f"`{name}`" for name in [*unknown][:_MAX_NAMES]])
        more = ", ..." if len(unknown) > _MAX_NAMES else ""
        text = f"{counted(len(unknown), 'PersistentVolume')} of claims not given: {names}{more}; node affinity of volumes not judged"
        return tuple(read), (text,) if unknown else ()


def claim_names(pod: Pod) -> Iterator[str]:
    """The names of the claims of a pod.

    Follows: v1.36, component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName.
    """
    for volume in pod.spec.volumes:
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, dict):
            yield str(claim.get("claimName") or "")
        elif volume.get("ephemeral") is not None:
            yield f"{pod.metadata.name}-{volume.get('name')}"
