"""What pods can have of a node, as a table and in words; and what keeps a kubelet from starting."""

from collections.abc import Iterable, Sequence
from typing import Any

from nodewright.core.allocatable import Derivation, NodeResources
from nodewright.model.release import RulesOf
from nodewright.model.start_reasons import OverReserved
from nodewright.render.tables import table
from nodewright.values.quantity import Quantity

_COLUMNS = (
    ("KUBE-RESERVED", "kube_reserved"),
    ("SYSTEM-RESERVED", "system_reserved"),
    ("EVICTION-HARD", "eviction_hard"),
    ("HUGE-PAGES", "huge_pages"),
    ("UNAVAILABLE", "unavailable"),
)


def allocatable_table(derivations: Sequence[Derivation]) -> str:
    """For each resource the capacity, what is taken off, and what is left; columns without amounts are left out.

    A star marks amounts that would be negative and count as nothing.

    >>> from nodewright.model.kubelet_config import KubeletConfiguration
    >>> from nodewright.core.allocatable import node_resources
    >>> from nodewright.model.machine import MachineInfo
    >>> found = node_resources(MachineInfo(num_cores=2, memory_capacity=2**30), 0, KubeletConfiguration())
    >>> print(allocatable_table(found.derivations), end="")
    RESOURCE            CAPACITY   EVICTION-HARD   ALLOCATABLE
    cpu                 2          -               2
    ephemeral-storage   0          -               0
    memory              1Gi        100Mi           924Mi
    pods                110        -               110
    """
    shown = [(title, name) for title, name in _COLUMNS if any(_amount(row, name) for row in derivations)]
    rows = [
        (
            row.resource,
            str(row.capacity),
            *(_cell(_amount(row, name)) for _, name in shown),
            f"{row.allocatable}{'*' if row.is_overdrawn else ''}",
        )
        for row in derivations
    ]
    return table(("RESOURCE", "CAPACITY", *(title for title, _ in shown), "ALLOCATABLE"), rows)


def allocatable_document(found: NodeResources) -> dict[str, Any]:
    """The same as plain values, with Kubernetes' names."""
    return {
        "capacity": dict(found.capacity),
        "allocatable": dict(found.allocatable),
        "derivation": {row.resource: _row_document(row) for row in found.derivations},
        "kubepodsLimits": dict(found.kubepods),
        **({"reservedSystemCPUs": found.reservations.cpus} if found.reservations.cpus else {}),
    }


def over_reservation(over: Iterable[OverReserved]) -> str:
    """The kubelet's words for not starting because more is reserved than there is.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, validateNodeAllocatable.
    Departs: resources by name, where the kubelet walks a map; it prints amounts as Go prints the structure,
        and so do we, but for those beyond 64 bits, where it prints an address.
    """
    each = (
        f'Resource "{one.resource}" has a reservation of {_structure(one.reservation)} '
        f"but capacity of {_structure(one.capacity)}. Expected capacity >= reservation."
        for one in over
    )
    return f"invalid Node Allocatable configuration. {' '.join(each)}"


def over_reservation_sentence(over: OverReserved) -> str:
    """What is wrong, and by how much."""
    missing = over.reservation - over.capacity
    return (
        f"{over.resource}: {over.reservation} reserved of {over.capacity}, {missing} too much; "
        "the kubelet does not start"
    )


def release_warning(rules: RulesOf) -> str | None:
    """That the answers are another release's, or None if they are not."""
    if not rules.are_foreign:
        return None
    return (
        f"Kubernetes {rules.release.text} has no rules of its own here: answers are those of {rules.rules_of}"
    )


def _amount(row: Derivation, name: str) -> Quantity | None:
    amount: Quantity = getattr(row, name)
    return None if amount.is_zero() else amount


def _cell(amount: Quantity | None) -> str:
    return "-" if amount is None else str(amount)


def _row_document(row: Derivation) -> dict[str, Quantity]:
    names = {
        "kubeReserved": row.kube_reserved,
        "systemReserved": row.system_reserved,
        "evictionHard": row.eviction_hard,
        "hugePages": row.huge_pages,
        "unavailable": row.unavailable,
    }
    taken = {name: amount for name, amount in names.items() if not amount.is_zero()}
    return {"capacity": row.capacity, **taken, "allocatable": row.allocatable}


def _structure(amount: Quantity) -> str:
    if not amount.quick:
        return str(amount)
    return f"{{{{{amount.unscaled} {amount.scale}}} {{<nil>}} {amount.kept} {amount.format}}}"
