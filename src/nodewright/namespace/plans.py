"""What an object that somebody applies brings with it: replicas, and what each of them needs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from nodewright.model.api_request import APIObject, GroupResource
from nodewright.model.manifest import Controller, Manifest, RollingUpdate
from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.quota_objects import (
    CountedObject,
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from nodewright.namespace.prices import DEVICES, PODS, VOLUMES

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)


class Part(NamedTuple):
    """One of the objects that are made together."""

    resource: GroupResource
    object: APIObject
    is_needed: bool = True
    """Whether what comes after it in the set is not made without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sets of objects that are alike and made one after the other."""

    parts: tuple[Part, ...]
    """One set, in the order in which its objects are made."""
    count: int = 1
    pod: Pod | None = None
    """The pod that the set has the name of; None: it is the only one of its name."""
    skips: int = 0
    """How many such pods there are before the first."""
    gives_up: bool = False
    """Whether nothing more is tried once a set is not made."""
    is_surge: bool = False
    """Whether it is what a rolling update has above what is wanted."""

    def named(self, part: Part, number: int) -> ObjectMeta:
        """The metadata of that part of the set of that number, from 0."""
        meta = part.object.metadata
        if self.pod is None:
            return meta
        old, base = self.pod.metadata.name, self.pod.metadata.generate_name
        new = f"{base}{int(old.removeprefix(base)) + self.skips + number}"
        return replace(
            meta,
            name=meta.name.replace(old, new, 1),
            # Of a pod it tells nothing more.
            generate_name="" if meta.name else meta.generate_name.replace(old, new, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is not in the manifests."""

    nodes: int = 1
    """How many nodes run the pods of each DaemonSet."""
    surge: bool = False
    """Whether all that can is in a rolling update, at the moment when most pods are there."""
    from_status: bool = False
    """Whether what quotas' status says is in use already."""


@dataclass(frozen=True, slots=True)
class Planner:
    """What becomes of manifests in one namespace."""

    setting: Setting
    templates: Mapping[str, ResourceClaimTemplate]
    """Templates for claims to devices, by name."""

    def steady(self, manifest: Manifest, replicas: int | None = None) -> Iterator[Plan]:
        """The object, what its controller makes first, and the replicas (as many as given, or as it says)."""
        made = manifest.controller
        own = Part(manifest.resource, manifest.object)
        if made is None:
            yield Plan(parts=(own, *self._after(manifest.object, manifest)))
            return
        yield Plan(parts=(own,))
        count = self.replicas(manifest) if replicas is None else replicas
        yield from self._helpers(made)
        if count:
            yield Plan(
                parts=self.set_of(manifest, made),
                count=count,
                pod=made.pod,
                gives_up=made.is_one_by_one,
            )

    def surging(self, manifest: Manifest, replicas: int | None = None) -> Iterator[Plan]:
        """What there is besides while the object is updated."""
        made = manifest.controller
        if made is None or not self.setting.surge:
            return
        count = self.replicas(manifest) if replicas is None else replicas
        extra = fenceposts(made.update, count).surge if made.update and count else 0
        if extra:
            yield from self._helpers(made, is_surge=True)
            yield Plan(
                parts=self.set_of(manifest, made),
                count=extra,
                pod=made.pod,
                skips=count,
                is_surge=True,
            )

    def replicas(self, manifest: Manifest) -> int:
        """How many pods the object wants."""
        made = manifest.controller
        if made is None:
            return 0
        return self.setting.nodes if made.replicas is None else made.replicas

    def set_of(self, manifest: Manifest, made: Controller) -> tuple[Part, ...]:
        """What one replica needs: its claims, the pod, and what is made for the pod."""
        claims = (Part(VOLUMES, _beside(claim, made.pod)) for claim in made.claims)
        return (*claims, Part(PODS, made.pod), *self._after(made.pod, manifest))

    def _after(self, item: APIObject, manifest: Manifest) -> Iterator[Part]:
        """The claims that are made for a pod once it is there.

        Follows: v1.36, pkg/controller/volume/ephemeral/controller.go, handleVolume;
            pkg/controller/resourceclaim/controller.go, handleClaim.
        """
        if not isinstance(item, Pod):
            return
        for claim in manifest.volumes:
            name = f"{item.metadata.name}-{claim.metadata.name}"
            yield Part(VOLUMES, _named(claim, name, item), is_needed=False)
        for wanted in item.spec.resource_claims:
            template = self.templates.get(str(wanted.get("resourceClaimTemplateName")))
            if template is not None:
                name = f"{item.metadata.name}-{wanted.get('name')}-"
                meta = ObjectMeta(generate_name=name, namespace=item.metadata.namespace)
                yield Part(DEVICES, ResourceClaim(metadata=meta, spec=template.spec.spec), is_needed=False)

    def _helpers(self, made: Controller, *, is_surge: bool = False) -> Iterator[Plan]:
        owner = next(iter(made.pod.metadata.owner_references), None)
        name = owner.name if owner is not None else ""
        meta = ObjectMeta(generate_name=f"{name}-", namespace=made.pod.metadata.namespace)
        for resource in made.makes:
            yield Plan(parts=(Part(resource, CountedObject(metadata=meta)),), is_surge=is_surge)


class Fenceposts(NamedTuple):
    """By how many pods an update goes above and below what is wanted."""

    surge: int
    unavailable: int


def fenceposts(update: RollingUpdate, wanted: int) -> Fenceposts:
    """What the percentages come to: surge rounded up, unavailable rounded down, and never both zero.

    Follows: v1.36, pkg/controller/deployment/util/deployment_util.go, ResolveFenceposts.

    >>> fenceposts(RollingUpdate(max_surge="25%", max_unavailable="25%"), 10)
    Fenceposts(surge=3, unavailable=2)
    >>> fenceposts(RollingUpdate(max_surge=0, max_unavailable="25%"), 3)
    Fenceposts(surge=0, unavailable=1)
    """
    surge = -(-_scaled(update.max_surge, wanted) // 100)
    unavailable = _scaled(update.max_unavailable, wanted) // 100
    if not surge and not unavailable:
        unavailable = 1
    return Fenceposts(surge, min(unavailable, wanted))


def _scaled(written: int | str, wanted: int) -> int:
    """A hundred times the number, or the per cent of what is wanted."""
    if isinstance(written, int):
        return 100 * written
    match = _PERCENT.fullmatch(written)
    return int(match[1]) * wanted if match else 0


def _beside(claim: PersistentVolumeClaim, pod: Pod) -> PersistentVolumeClaim:
    """The claim that a StatefulSet makes for the pod.

    Follows: v1.36, pkg/controller/statefulset/stateful_set_utils.go, getPersistentVolumeClaimName.
    """
    return _named(claim, f"{claim.metadata.name}-{pod.metadata.name}", pod)


def _named(claim: PersistentVolumeClaim, name: str, pod: Pod) -> PersistentVolumeClaim:
    meta = replace(claim.metadata, name=name, namespace=pod.metadata.namespace)
    return replace(claim, metadata=meta)
