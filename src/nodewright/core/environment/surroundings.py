"""What a pod's variables and volumes are made of, and what is said when a part of it lacks."""

from collections.abc import Mapping

import msgspec

from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import ResourceList


class Lacking(msgspec.Struct, frozen=True):
    """Something that a pod names is not there, or makes no sense; in the kubelet's words."""

    message: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What there is around a pod.

    ``config_maps`` and ``secrets`` are those of its namespace, by name.
    """

    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    allocatable: ResourceList = {}
    """What pods can have of the node: a limit for those who have none."""
    config_maps: Mapping[str, ConfigMap] = {}
    secrets: Mapping[str, Secret] = {}
    env_files: Mapping[tuple[str, str], str | Lacking] = {}
    """The texts of files with variables, by volume and path."""


def config_map(around: Surroundings, name: str) -> ConfigMap | Lacking:
    """A ConfigMap of the pod's namespace.

    Follows: v1.36, kubelet/util/manager/watch_based_manager.go, Get.
    """
    return around.config_maps.get(name) or Lacking(f'configmap "{name}" not found')


def secret(around: Surroundings, name: str) -> Secret | Lacking:
    """A Secret of the pod's namespace; likewise."""
    return around.secrets.get(name) or Lacking(f'secret "{name}" not found')
