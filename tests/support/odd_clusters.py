"""Small clusters of unlike nodes and pods with many kinds of terms, drawn from a seed."""

from collections.abc import Callable
from random import Random
from typing import Any

_ZONES, _APPS, _MIB = ("a", "b", "c"), ("web", "db", "job"), 1 << 20
_IMAGES = {"big": 900 * _MIB, "small": 30 * _MIB, "medium": 250 * _MIB}
_TAINTS = (
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "old", "effect": "PreferNoSchedule"},
    {"key": "leaving", "effect": "NoExecute"},
)


class OddClusters:
    """Draws nodes and pods."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def nodes(self) -> list[dict[str, Any]]:
        """Two to seven nodes."""
        return [self._node(f"n{number}") for number in range(self.random.choice((2, 3, 4, 5, 7)))]

    def _node(self, name: str) -> dict[str, Any]:
        draw = self.random
        capacity = {
            "cpu": draw.choice(("2", "4", "3500m")),
            "memory": draw.choice(("4Gi", "8Gi", "6000Mi")),
            "pods": draw.choice(("3", "8", "110")),
            "ephemeral-storage": "20Gi",
        }
        if draw.random() < 0.3:
            capacity["nvidia.com/gpu"] = draw.choice(("0", "1", "4"))
        if draw.random() < 0.2:
            capacity["hugepages-2Mi"] = "64Mi"
        allocatable = {**capacity, "memory": draw.choice((capacity["memory"], "3Gi"))}
        labels = {"kubernetes.io/os": "linux"}
        if draw.random() < 0.9:
            labels["kubernetes.io/hostname"] = name
        if draw.random() < 0.8:
            labels["zone"] = draw.choice(_ZONES)
        if draw.random() < 0.4:
            labels["disk"] = draw.choice(("ssd", "hdd"))
        images = [
            {"names": [f"{image}:1"], "sizeBytes": size}
            for image, size in _IMAGES.items()
            if draw.random() < 0.4
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "unschedulable": draw.random() < 0.08,
                "taints": [taint for taint in _TAINTS if draw.random() < 0.12],
            },
            "status": {"capacity": capacity, "allocatable": allocatable, "images": images},
        }

    def pod(self, name: str) -> dict[str, Any]:
        """A pod that waits for the scheduler."""
        draw = self.random
        spec: dict[str, Any] = {"containers": [self._container("main")]}
        if draw.random() < 0.2:
            spec["containers"].append(self._container("more"))
        if draw.random() < 0.15:
            sidecar = {"restartPolicy": "Always"} if draw.random() < 0.5 else {}
            spec["initContainers"] = [{**self._container("init"), **sidecar}]
        affinity = {
            kind: terms
            for kind, make, chance in (
                ("nodeAffinity", self._node_affinity, 0.3),
                ("podAffinity", self._pod_affinity, 0.15),
                ("podAntiAffinity", self._pod_affinity, 0.2),
            )
            if draw.random() < chance and (terms := make())
        }
        optional: dict[str, tuple[float, Callable[[], Any]]] = {
            "nodeSelector": (0.15, lambda: {"disk": "ssd"}),
            "tolerations": (0.3, lambda: [{"key": draw.choice(("dedicated", "old")), "operator": "Exists"}]),
            "topologySpreadConstraints": (0.3, lambda: [self._spread(key) for key in self._spread_keys()]),
        }
        spec |= {field: make() for field, (chance, make) in optional.items() if draw.random() < chance}
        if affinity:
            spec["affinity"] = affinity
        meta = {"name": name, "namespace": "default", "labels": {"app": draw.choice(_APPS)}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _container(self, name: str) -> dict[str, Any]:
        draw = self.random
        requests = {
            resource: draw.choice(amounts)
            for resource, amounts, chance in (
                ("cpu", ("100m", "500m", "1", "0", "3"), 0.8),
                ("memory", ("64Mi", "1Gi", "2Gi", "2500Mi"), 0.7),
                ("ephemeral-storage", ("1Gi", "30Gi"), 0.05),
            )
            if draw.random() < chance
        }
        limits = {}
        if draw.random() < 0.1:
            limits[draw.choice(("nvidia.com/gpu", "example.com/none"))] = "1"
        if draw.random() < 0.05 and "memory" in requests:
            limits["hugepages-2Mi"] = "32Mi"
        container: dict[str, Any] = {
            "name": name,
            "image": f"{draw.choice(tuple(_IMAGES))}{draw.choice((':1', ''))}",
            "resources": {"requests": {**requests, **limits}, "limits": limits},
        }
        if draw.random() < 0.1 and name == "main":
            container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return container

    def _node_affinity(self) -> dict[str, Any]:
        draw, terms = self.random, dict[str, Any]()
        if draw.random() < 0.5:
            terms["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": [self._node_term() for _ in range(draw.choice((1, 2)))]
            }
        if draw.random() < 0.7:
            terms["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.choice((1, 50, 100)), "preference": self._node_term(is_required=False)}
                for _ in range(draw.choice((1, 2)))
            ]
        return terms

    def _node_term(self, *, is_required: bool = True) -> dict[str, Any]:
        draw = self.random
        if is_required and draw.random() < 0.25:
            names = {"key": "metadata.name", "operator": draw.choice(("In", "NotIn"))}
            return {"matchFields": [{**names, "values": [f"n{draw.choice(range(4))}"]}]}
        key = draw.choice(("zone", "disk"))
        operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = {"values": [draw.choice(("a", "b", "ssd"))]} if operator in ("In", "NotIn") else {}
        return {"matchExpressions": [{"key": key, "operator": operator, **values}]}

    def _pod_affinity(self) -> dict[str, Any]:
        draw = self.random
        term = {
            "labelSelector": {"matchLabels": {"app": draw.choice(_APPS)}},
            "topologyKey": draw.choice(("zone", "kubernetes.io/hostname")),
        }
        if draw.random() < 0.5:
            return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        weighted = {"weight": draw.choice((1, 60, 100)), "podAffinityTerm": term}
        return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}

    def _spread_keys(self) -> list[str]:
        return self.random.sample(("zone", "kubernetes.io/hostname"), self.random.choice((1, 1, 2)))

    def _spread(self, key: str) -> dict[str, Any]:
        draw = self.random
        return {
            "maxSkew": draw.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"app": draw.choice(_APPS)}},
        }
