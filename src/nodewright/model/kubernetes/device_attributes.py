"""The value of a device attribute in a ResourceSlice: a string, integer, boolean or version, or a list of one kind."""

from typing import TypeAlias

import msgspec


class Version(msgspec.Struct, frozen=True):
    """A semantic version as it is written; whether it parses is found out when a selector reads the device."""

    text: str


AttributeValue: TypeAlias = (
    bool
    | int
    | str
    | Version
    | tuple[bool, ...]
    | tuple[int, ...]
    | tuple[str, ...]
    | tuple[Version, ...]
    | None
)
"""None: the attribute has no value of a kind that Kubernetes knows.

Follows: v1.36, staging/src/k8s.io/api/resource/v1/types.go, DeviceAttribute. Lists are alpha
    (feature gate DRAListTypeAttributes).
"""
