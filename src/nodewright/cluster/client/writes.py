"""Kinds of requests that change objects."""

from enum import Enum
from typing import Any


class WriteKind(Enum):
    """A kind of write: the verb of the request, and the type of its body."""

    CREATE = ("POST", "application/json")
    REPLACE = ("PUT", "application/json")
    JSON_PATCH = ("PATCH", "application/json-patch+json")
    MERGE_PATCH = ("PATCH", "application/merge-patch+json")
    STRATEGIC_PATCH = ("PATCH", "application/strategic-merge-patch+json")
    DELETE = ("DELETE", "application/json")


def delete_options(
    *, uid: str = "", resource_version: str = "", grace_period_s: int | None = None
) -> dict[str, Any]:
    """The DeleteOptions for the object of that UID and version only.

    >>> delete_options(uid="7", grace_period_s=0)["preconditions"]
    {'uid': '7'}
    """
    preconditions = {"uid": uid} if uid else {}
    preconditions |= {"resourceVersion": resource_version} if resource_version else {}
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
    return options | ({} if grace_period_s is None else {"gracePeriodSeconds": grace_period_s})
