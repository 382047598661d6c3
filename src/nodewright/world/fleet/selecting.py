"""Objects that select pods: Services, disruption budgets, and what makes pods."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodewright.model.fleet import Budget, Share
from nodewright.world.errors import Fault
from nodewright.world.places import Place

BUDGET, SERVICE = ("policy/v1", "PodDisruptionBudget"), ("v1", "Service")
_BY_LABELS = (("v1", "ReplicationController"),)
_BY_SELECTOR = (("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"))
_SHARE = re.compile(r"([0-9]{1,9})(%?)")
_BOUNDS = {"minAvailable": "min_available", "maxUnavailable": "max_unavailable"}


@dataclass(slots=True)
class Selecting:
    """What was found so far."""

    budgets: list[Budget] = field(default_factory=list)
    services: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Namespaces, and the labels of pods that are meant there."""

    def take(self, value: Mapping[str, Any], namespace: str, place: Place) -> list[Fault] | None:
        """Take in an object, and say what is wrong with it; None: it is none of these."""
        kind = (value.get("apiVersion"), value.get("kind"))
        if kind not in (BUDGET, SERVICE):
            return None
        meta, spec = _part(value.get("metadata")), _part(value.get("spec"))
        namespace = str(meta.get("namespace") or namespace)
        if kind == SERVICE:
            if labels := _part(spec.get("selector")):
                self.services.append((namespace, {str(key): str(text) for key, text in labels.items()}))
            return []
        found = list(_faults(spec))
        if not found:
            shares = {name: _share(spec.get(key)) for key, name in _BOUNDS.items()}
            name = str(meta.get("name") or "")
            self.budgets.append(
                Budget(name=name, namespace=namespace, selector=spec.get("selector"), **shares)
            )
        return [place.of(fault) for fault in found]

    def selector_of(
        self, namespace: str, labels: Mapping[str, str], own: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """What means the pod: all Services that do, and its controller's own selector; None: nothing does.

        Follows: v1.36, pkg/scheduler/framework/plugins/helper/spread.go, DefaultSelector.
        """
        meant = dict(_part((own or {}).get("matchLabels")))
        for its, wanted in self.services:
            if its == namespace and wanted.items() <= labels.items():
                meant |= wanted
        expressions = (own or {}).get("matchExpressions") or []
        return {"matchLabels": meant, "matchExpressions": expressions} if meant or expressions else None


def own_selector(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The selector of what makes pods, where the scheduler looks at it: not that of Jobs and DaemonSets."""
    kind = (value.get("apiVersion"), value.get("kind"))
    selector = _part(value.get("spec")).get("selector")
    if not isinstance(selector, dict):
        return None
    if kind in _BY_LABELS:
        return {"matchLabels": selector}
    return selector if kind in _BY_SELECTOR else None


def _faults(spec: Mapping[str, Any]) -> Iterator[Fault]:
    given = [key for key in _BOUNDS if spec.get(key) is not None]
    if len(given) != 1:
        rule = "one of minAvailable and maxUnavailable is wanted"
        yield Fault(path="spec", rule=rule)
    for key in given:
        if _share(spec[key]) is None:
            rule = "a whole number or a percentage is wanted, 0 or more"
            yield Fault(path=f"spec.{key}", value=spec[key], rule=rule)
    if not isinstance(spec.get("selector", {}), dict | None):
        yield Fault(path="spec.selector", value=spec["selector"], rule="a label selector is wanted")


def _share(value: Any) -> Share | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    found = _SHARE.fullmatch(str(value))
    # A number in quotes is no percentage: the API server refuses it.
    if found is None or isinstance(value, str) != bool(found[2]):
        return None
    return Share(int(found[1]), is_percent=bool(found[2]))


def _part(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
