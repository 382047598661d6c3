"""A reading of a node as people write it: what is available, and rows of what pods use."""

import msgspec

from nodewright.model.pressure import NodeCondition
from nodewright.model.usage import Usage
from nodewright.values.quantity import Quantity


class UsageRow(msgspec.Struct, frozen=True, rename="camel"):
    """What a container of a pod uses, or (`volume`) what one of its volumes holds.

    Units: amounts of bytes; inodes and processes in pieces.
    """

    pod: str
    """Its uid, or namespace and name with a slash between."""
    container: str = ""
    """Empty: the pod's first."""
    volume: str = ""
    memory: Quantity | None = None
    """The working set."""
    rootfs: Quantity | None = None
    """The writable layer."""
    logs: Quantity | None = None
    used: Quantity | None = None
    """What the volume holds."""
    inodes: Quantity | None = None
    """Of the writable layer, or of the volume."""
    processes: Quantity | None = None
    """Of the pod, or in a row of a container of that one."""


class UsageTable(msgspec.Struct, frozen=True, rename="camel"):
    """What is left by signal, and what pods use."""

    available: dict[str, Quantity] = {}
    capacity: dict[str, Quantity] = {}
    """How much there is of what signals watch, where the node's description does not say."""
    pods: tuple[UsageRow, ...] = ()


class Look(msgspec.Struct, frozen=True, rename="camel"):
    """What an eviction manager is shown in one pass, in a scenario: a summary, or a table, or conditions alone."""

    at: str | None = None
    """When, since the beginning; None: ten seconds after the last time."""
    summary: Usage | None = None
    usage: UsageTable | None = None
    after: Usage | None = None
    """The reading once the node has given back what it can; None: that changed nothing."""
    failed: bool = False
    """The stats could not be read: the pass does nothing."""
    conditions: tuple[NodeCondition, ...] | None = None
    """What the node says of itself from now on, whoever found it."""
