"""Pods with odd values, drawn from a seed, for comparison with a real API server."""

from collections.abc import Callable
from random import Random
from typing import Any

AMOUNTS = ("1", "100m", "0", "-1", "1Gi", "1.00005", "250Mi", "3Mi", "0.5", "1e3", "2Mi", "64", "1500m", None)
RESOURCES = ("cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "ephemeral-storage", "nvidia.com/gpu", "pods", "storage",
             "example.com/a_b", "kubernetes.io/x", "hugepages-3x", "gpu", "requests.cpu", "-x/y")  # fmt: skip
NAMES = (
    "a",
    "b",
    "A",
    "a_b",
    "a.b",
    "-a",
    "",
    "x" * 64,
    "web",
    "1",
    "é",
    "http",
    "h--p",
    "123",
    "p" * 16,
    "a-",
)
KEYS = ("zone", "a/b", "a/b/c", "", "kubernetes.io/hostname", "-a", "Z", "x" * 64, "é")
VALUES = ("", "a", "b c", "-", "x" * 64, "1", "A_b.c")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "", "in")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "", "None")
POLICIES = ("Always", "OnFailure", "Never", "", "Sometimes")


class OddPods:
    """Draws pods: most of their fields are valid, some are odd."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def pod(self) -> dict[str, Any]:
        """A pod."""
        odd = self.random
        spec: dict[str, Any] = {
            "containers": [self.container(index) for index in range(odd.choice((1, 1, 2)))]
        }
        if odd.random() < 0.3:
            spec["initContainers"] = [self.init_container(index) for index in range(odd.choice((1, 2)))]
        fields: dict[str, Callable[[], Any]] = {
            "volumes": self.volumes,
            "ephemeralContainers": lambda: [self.ephemeral_container()],
            "resources": self.resources,
            "nodeSelector": lambda: {self.key(): self.value()},
            "affinity": self.affinity,
            "tolerations": lambda: [self.toleration() for _ in range(odd.choice((1, 2)))],
            "topologySpreadConstraints": lambda: [self.spread() for _ in range(odd.choice((1, 2)))],
            "restartPolicy": lambda: odd.choice(POLICIES),
            "priority": lambda: odd.choice((0, 5, -1)),
            "priorityClassName": lambda: odd.choice(("system-node-critical", "high", "", "Bad_Name")),
            "preemptionPolicy": lambda: odd.choice(("Never", "PreemptLowerPriority", "Perhaps")),
            "overhead": lambda: odd.choice(({}, {"cpu": odd.choice(("250m", "1")), **self.amounts(1)})),
            "runtimeClassName": lambda: odd.choice(("vm", "plain", "Bad_Name")),
            "schedulingGates": lambda: [{"name": self.key()} for _ in range(odd.choice((1, 2)))],
            "readinessGates": lambda: [{"conditionType": self.key()}],
            "nodeName": lambda: odd.choice(("node-1", "Node", "")),
            "hostNetwork": lambda: odd.choice((True, False)),
            "hostPID": lambda: odd.choice((True, False)),
            "hostIPC": lambda: odd.choice((True, False)),
            "hostUsers": lambda: odd.choice((True, False)),
            "activeDeadlineSeconds": lambda: odd.choice((0, 1, -5, 2**31)),
            "terminationGracePeriodSeconds": lambda: odd.choice((0, 30, -1)),
            "hostname": lambda: odd.choice(NAMES),
            "subdomain": lambda: odd.choice(NAMES),
            "securityContext": self.profile,
            "os": lambda: {"name": odd.choice(("linux", "windows", "", "plan9"))},
        }
        for name in odd.sample(sorted(fields), odd.choice((0, 1, 1, 2, 3))):
            spec[name] = fields[name]()
        meta: dict[str, Any] = {"name": odd.choice(("web", "web", "web", *NAMES)) or "web"}
        if odd.random() < 0.1:
            meta["labels"] = {self.key(): self.value()}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def key(self) -> str:
        """A label key."""
        return self.random.choice(KEYS)

    def value(self) -> str:
        """A label value."""
        return self.random.choice(VALUES)

    def amounts(self, most: int = 2) -> dict[str, str | None]:
        """Amounts of resources."""
        names = self.random.choices(
            RESOURCES, (9, 9, 5, 2, 2, 5, 1, 1, 1, 1, 1, 1, 1, 1), k=self.random.randint(0, most)
        )
        return {name: self.random.choice(AMOUNTS) for name in names}

    def resources(self) -> dict[str, Any]:
        """Requests and limits."""
        parts = {"requests": self.amounts(), "limits": self.amounts()}
        return {name: part for name, part in parts.items() if part or self.random.random() < 0.1}

    def container(self, index: int) -> dict[str, Any]:
        """A container."""
        odd = self.random
        container: dict[str, Any] = {"name": f"c{index}", "image": "image"}
        if odd.random() < 0.04:
            container["image"] = odd.choice((" image", "image\n", " "))
        if odd.random() < 0.1:
            container["volumeMounts"] = [self.mount() for _ in range(odd.choice((1, 2)))]
        if odd.random() < 0.1:
            container["volumeDevices"] = [self.device() for _ in range(odd.choice((1, 2)))]
        if odd.random() < 0.07:
            container["name"] = odd.choice(NAMES)
        if odd.random() < 0.6:
            container["resources"] = self.resources()
        if odd.random() < 0.2:
            container["ports"] = [self.port() for _ in range(odd.choice((1, 2)))]
        if odd.random() < 0.1:
            container["resizePolicy"] = [
                {
                    "resourceName": odd.choice(("cpu", "memory", "memory", "nvidia.com/gpu", "")),
                    "restartPolicy": odd.choice(("NotRequired", "RestartContainer", "", "Never")),
                }
                for _ in range(odd.choice((1, 2)))
            ]
        if odd.random() < 0.1:
            container["restartPolicy"] = odd.choice(POLICIES)
        if odd.random() < 0.1:
            container["restartPolicyRules"] = [self.restart_rule() for _ in range(odd.choice((1, 2, 21)))]
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            if odd.random() < 0.06:
                container[name] = self.probe()
        if odd.random() < 0.06:
            container["securityContext"] = self.profile()
        if odd.random() < 0.06:
            container["lifecycle"] = odd.choice(
                ({"stopSignal": "SIGTERM"}, {"preStop": {"exec": {"command": ["a"]}}, "stopSignal": "SIGHUP"})
            )
        return container

    def volumes(self) -> list[dict[str, Any]]:
        """Volumes that are empty, of claims, or of claim templates."""
        odd = self.random
        sources: tuple[Callable[[], dict[str, Any]], ...] = (
            dict,
            lambda: {"emptyDir": {"sizeLimit": odd.choice(("1Gi", "-1", "0"))}},
            lambda: {"persistentVolumeClaim": {"claimName": odd.choice(("data", "", "web-v0"))}},
            lambda: {"ephemeral": {"volumeClaimTemplate": self.claim_template()}},
        )
        return [
            {"name": odd.choice((f"v{number}", "v0")), **odd.choice(sources)()}
            for number in range(odd.choice((1, 2)))
        ]

    def claim_template(self) -> dict[str, Any]:
        """A template of a claim."""
        odd = self.random
        modes = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "Never")
        spec: dict[str, Any] = {
            "accessModes": odd.sample(modes, odd.choice((0, 1, 1, 2))),
            "resources": {"requests": {"storage": odd.choice(("1Gi", "0", "-1", "1500m"))}},
        }
        if odd.random() < 0.2:
            del spec["resources"]
        if odd.random() < 0.3:
            spec["storageClassName"] = odd.choice(("fast", "", "Bad_Name"))
        if odd.random() < 0.3:
            spec["volumeMode"] = odd.choice(("Block", "Filesystem", "", "Tape"))
        if odd.random() < 0.2:
            spec["selector"] = self.label_selector()
        if odd.random() < 0.2:
            kind = odd.choice(("PersistentVolumeClaim", "VolumeSnapshot", ""))
            spec["dataSource"] = {"name": odd.choice(("a", "")), "kind": kind}
        meta = {"labels": {self.key(): self.value()}} if odd.random() < 0.2 else {}
        return {"metadata": {**meta, **odd.choice(({}, {}, {"name": "a"}))}, "spec": spec}

    def mount(self) -> dict[str, Any]:
        """A mount of a volume."""
        odd = self.random
        more = odd.choice(({}, {}, {"subPath": "../a"}, {"subPathExpr": "a"}, {"readOnly": True}))
        return {"name": odd.choice(("v0", "v1", "")), "mountPath": odd.choice(("/a", "/b", "")), **more}

    def device(self) -> dict[str, Any]:
        """A block device."""
        odd = self.random
        return {
            "name": odd.choice(("v0", "v1", "")),
            "devicePath": odd.choice(("/a", "/dev/b", "/dev/../b", "")),
        }

    def ephemeral_container(self) -> dict[str, Any]:
        """A container that no new pod may have."""
        target = self.random.choice(({}, {"targetContainerName": "c0"}, {"targetContainerName": "c9"}))
        return {**self.container(self.random.choice((0, 5))), **target}

    def init_container(self, index: int) -> dict[str, Any]:
        """An init container, or a sidecar."""
        container = self.container(index)
        container["name"] = f"i{index}" if self.random.random() < 0.9 else "c0"
        if self.random.random() < 0.3:
            container["restartPolicy"] = "Always"
        return container

    def profile(self) -> dict[str, Any]:
        """A security context with a profile."""
        odd = self.random
        profile: dict[str, Any] = {
            "type": odd.choice(("Localhost", "RuntimeDefault", "Unconfined", "", "None"))
        }
        if odd.random() < 0.5:
            profile["localhostProfile"] = odd.choice(("a/b", "", "../a", "/a", " a"))
        return {odd.choice(("seccompProfile", "appArmorProfile")): profile}

    def port(self) -> dict[str, Any]:
        """A port."""
        odd = self.random
        port: dict[str, Any] = {"containerPort": odd.choice((80, 81, 0, 65536, -1))}
        if odd.random() < 0.5:
            port["name"] = odd.choice(NAMES)
        if odd.random() < 0.5:
            port["hostPort"] = odd.choice((80, 81, 0, 70000))
        if odd.random() < 0.2:
            port["protocol"] = odd.choice(("TCP", "UDP", "SCTP", "tcp", ""))
        return port

    def restart_rule(self) -> dict[str, Any]:
        """A restart rule."""
        odd = self.random
        rule: dict[str, Any] = {
            "action": odd.choice(("Restart", "Restart", "RestartAllContainers", "", "Stop"))
        }
        if odd.random() < 0.8:
            values = odd.choice(([1], [], list(range(256)), [1, 1], None))
            rule["exitCodes"] = {"operator": odd.choice(("In", "NotIn", "", "Exists")), "values": values}
        return rule

    def probe(self) -> dict[str, Any]:
        """A probe."""
        odd = self.random
        probe: dict[str, Any] = odd.choice(({"exec": {"command": ["a"]}}, {"tcpSocket": {"port": 80}}, {}))
        probe = dict(probe)
        names = (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        )
        for name in odd.sample(names, 2):
            probe[name] = odd.choice((0, 1, 2, -1))
        if odd.random() < 0.2:
            probe["terminationGracePeriodSeconds"] = odd.choice((0, 1, -1))
        return probe

    def toleration(self) -> dict[str, Any]:
        """A toleration."""
        odd = self.random
        parts = {
            "key": self.key(),
            "operator": odd.choice(("Exists", "Equal", "", "Lt", "In")),
            "value": self.value(),
            "effect": odd.choice(EFFECTS),
            "tolerationSeconds": odd.choice((0, 5, -1)),
        }
        return {name: parts[name] for name in odd.sample(sorted(parts), odd.randint(0, 4))}

    def requirement(self) -> dict[str, Any]:
        """A requirement of a selector."""
        parts: dict[str, Any] = {"key": self.key(), "operator": self.random.choice(OPERATORS)}
        if self.random.random() < 0.7:
            parts["values"] = [self.value() for _ in range(self.random.choice((0, 1, 2)))]
        return parts

    def label_selector(self) -> dict[str, Any]:
        """A label selector."""
        selector: dict[str, Any] = {}
        if self.random.random() < 0.5:
            selector["matchLabels"] = {self.key(): self.value()}
        if self.random.random() < 0.5:
            selector["matchExpressions"] = [self.requirement()]
        return selector

    def node_term(self) -> dict[str, Any]:
        """A term of node affinity."""
        term: dict[str, Any] = {}
        if self.random.random() < 0.8:
            term["matchExpressions"] = [self.requirement()]
        if self.random.random() < 0.3:
            field = self.requirement()
            field["key"] = self.random.choice(("metadata.name", "metadata.uid"))
            term["matchFields"] = [field]
        return term

    def pod_term(self) -> dict[str, Any]:
        """A term of pod affinity."""
        odd = self.random
        parts: dict[str, Any] = {
            "labelSelector": self.label_selector(),
            "namespaceSelector": self.label_selector(),
            "namespaces": [odd.choice(NAMES)],
            "topologyKey": self.key(),
            "matchLabelKeys": [self.key()],
            "mismatchLabelKeys": [self.key()],
        }
        names = odd.sample(sorted(parts), odd.randint(1, 4))
        return {"topologyKey": "zone", **{name: parts[name] for name in names}}

    def affinity(self) -> dict[str, Any]:
        """An affinity."""
        odd = self.random
        required, preferred = (
            f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
        )
        weight = odd.choice((1, 100, 0, 101, -1))
        parts: list[dict[str, Any]] = [
            {
                "nodeAffinity": {
                    required: {"nodeSelectorTerms": [self.node_term() for _ in range(odd.choice((0, 1, 2)))]}
                }
            },
            {"nodeAffinity": {preferred: [{"weight": weight, "preference": self.node_term()}]}},
            {"podAffinity": {required: [self.pod_term()]}},
            {"podAntiAffinity": {preferred: [{"weight": weight, "podAffinityTerm": self.pod_term()}]}},
        ]
        return odd.choice(parts)

    def spread(self) -> dict[str, Any]:
        """A topology spread constraint."""
        odd = self.random
        parts: dict[str, Any] = {
            "maxSkew": odd.choice((1, 0, -1)),
            "topologyKey": self.key(),
            "whenUnsatisfiable": odd.choice(("DoNotSchedule", "ScheduleAnyway", "", "Perhaps")),
            "labelSelector": self.label_selector(),
            "minDomains": odd.choice((1, 0, -1)),
            "nodeAffinityPolicy": odd.choice(("Honor", "Ignore", "", "Perhaps")),
            "nodeTaintsPolicy": odd.choice(("Honor", "Ignore")),
            "matchLabelKeys": [self.key()],
        }
        names = odd.sample(sorted(parts), odd.randint(0, 4))
        base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        return {**base, **{name: parts[name] for name in names}}

    def limit_range(self, name: str) -> dict[str, Any]:
        """A limit range, often with contradictions."""
        odd = self.random
        items = []
        for kind in odd.choices(("Container", "Container", "Pod"), k=odd.choice((1, 2))):
            fields: tuple[str, ...] = ("min", "max", "maxLimitRequestRatio")
            fields += ("default", "defaultRequest") if kind == "Container" else ()
            items.append({"type": kind, **{field: self.amounts() for field in fields if odd.random() < 0.4}})
        return {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": name},
            "spec": {"limits": items},
        }
