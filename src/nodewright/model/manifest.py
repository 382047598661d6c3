"""An object as somebody applies it: which resource it is, and what a controller makes of it."""

from dataclasses import dataclass

from nodewright.model.api_request import APIObject, GroupResource
from nodewright.model.objects import Pod
from nodewright.model.quota_objects import PersistentVolumeClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingUpdate:
    """By how many pods an update may go above and below what is wanted: numbers or percentages, as written."""

    max_surge: int | str = 0
    max_unavailable: int | str = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What makes pods of an object: how many, which, and what else."""

    pod: Pod
    """The first of them, as it gets to the API server."""
    replicas: int | None
    """None: one on every node."""
    makes: tuple[GroupResource, ...] = ()
    """What stands between it and its pods: the ReplicaSet of a Deployment, the Job of a CronJob, a
    ControllerRevision."""
    claims: tuple[PersistentVolumeClaim, ...] = ()
    """Claims to volumes that each of its pods gets (StatefulSet); their names are those of the templates."""
    is_one_by_one: bool = False
    """Whether it waits for each pod before it makes the next."""
    update: RollingUpdate | None = None
    """How it changes its pods; None: it ends them before it makes others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An object as somebody applies it."""

    api_version: str
    kind: str
    resource: GroupResource
    object: APIObject
    """With the fields that decide; of most kinds nothing but the metadata. A pod is as arrival makes it."""
    is_namespaced: bool = True
    controller: Controller | None = None
    """None: it makes no pods."""
    volumes: tuple[PersistentVolumeClaim, ...] = ()
    """Claims to volumes that come and go with each pod; their names are those of the pod's volumes."""

    @property
    def namespace(self) -> str:
        """The object's namespace; empty if it is in none."""
        return self.object.metadata.namespace if self.is_namespaced else ""

    @property
    def name(self) -> str:
        """The object's name, or what the API server begins it with."""
        return self.object.metadata.name or self.object.metadata.generate_name
