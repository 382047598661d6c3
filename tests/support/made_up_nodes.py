"""Made-up machines, kubelet configurations and pods, from a seed."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.machine_files import machine_files, write_machine_files
from tests.support.nominal_runtime import IMAGE

from nodewright.model.hardware import GIB, Core, HugePages, MachineInfo, NUMANode, UncoreCache

# Not strict-cpu-reservation, nor the policy none: their kubelets write all CPUs into a real cgroup, which has fewer.
_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "prefer-align-cpus-by-uncorecache",
)
_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_ALPHA = ("CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "TopologyManagerPolicyBetaOptions")


class MadeUpNode:
    """A machine with the configuration of its kubelet."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.machine = self._machine()
        self.configuration = self._configuration()

    def write_files(self, folder: Path) -> Path:
        """The folder with the files of /sys and /proc."""
        files = machine_files(self.machine)
        # cAdvisor does without caches and huge pages, but not without a clock.
        files["proc/cpuinfo"] += "cpu MHz\t\t: 2000.000\n"
        write_machine_files(files, folder)
        for place in ("sys/kernel/mm/hugepages", "sys/devices/system/node"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        return folder

    def pods(self, count: int) -> Iterator[dict[str, Any]]:
        """Pods for it, one after the other."""
        for number in range(count):
            yield self._pod(f"pod-{number}")

    def _machine(self) -> MachineInfo:
        pick = self._random
        sockets, numa, threads = pick.choice((1, 1, 2)), pick.choice((1, 1, 2, 4)), pick.choice((1, 2, 2))
        cores, sharing = pick.randint(2, 8), pick.choice((0, 2, 4))
        total = sockets * numa * cores
        sizes = pick.choice(((), (2048,), (1048576, 2048)))
        nodes = []
        for node in range(sockets * numa):
            group = []
            for core in range(node * cores, (node + 1) * cores):
                cache = (
                    UncoreCache(id=core // sharing, size=32 << 20, type="Unified", level=3)
                    if sharing
                    else None
                )
                ids = tuple(core + total * thread for thread in range(threads))
                caches = () if cache is None or sharing >= cores else (cache,)
                group.append(Core(core_id=core, socket_id=node // numa, thread_ids=ids, uncore_caches=caches))
            distances = tuple(
                10 if node == other else 12 if node // numa == other // numa else 32
                for other in range(sockets * numa)
            )
            pages = tuple(
                HugePages(page_size=size, num_pages=pick.choice((0, 2, 3)) * (512 if size == 2048 else 1))
                for size in sizes
            )
            memory = GIB * pick.choice((8, 16))
            nodes.append(
                NUMANode(
                    node_id=node, memory=memory, distances=distances, cores=tuple(group), hugepages=pages
                )
            )
        return MachineInfo(
            num_cores=total * threads,
            num_physical_cores=total,
            num_sockets=sockets,
            memory_capacity=sum(node.memory for node in nodes),
            topology=tuple(nodes),
            hugepages=tuple(
                HugePages(page_size=size, num_pages=sum(node.hugepages[place].num_pages for node in nodes))
                for place, size in enumerate(sizes)
            ),
        )

    def _configuration(self) -> dict[str, Any]:
        pick, nodes = self._random, len(self.machine.topology)
        config: dict[str, Any] = {
            "featureGates": dict.fromkeys(_ALPHA, True),
            "topologyManagerPolicy": pick.choice(_POLICIES),
            "topologyManagerScope": pick.choice(("container", "pod")),
        }
        options = pick.sample(_OPTIONS, pick.choice((0, 1, 1, 2)))
        config |= {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": dict.fromkeys(options, "true")}
        config["reservedSystemCPUs"] = pick.choice(("0", "0-1", f"{self.machine.num_cores - 1}"))
        if config["topologyManagerPolicy"] != "none" and pick.random() < 0.4:
            config["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
        if pick.random() < 0.6:
            config["memoryManagerPolicy"] = "Static"
            config["kubeReserved"] = {"memory": "1Gi", "cpu": "500m"}
            split = nodes > 1 and pick.random() < 0.5
            parts = ((0, "512Mi"), (1, "512Mi")) if split else ((0, "1Gi"),)
            config["reservedMemory"] = [
                {"numaNode": node, "limits": {"memory": amount}} for node, amount in parts
            ]
        else:
            config["systemReserved"] = {
                "memory": pick.choice(("0", "700Mi")),
                "cpu": pick.choice(("0", "250m")),
            }
        return config

    def _pod(self, name: str) -> dict[str, Any]:
        pick = self._random
        containers = [self._container(f"c{number}") for number in range(pick.choice((1, 1, 1, 2, 3)))]
        first = [self._container(f"init{number}") for number in range(pick.choice((0, 0, 0, 1, 2)))]
        if pick.random() < 0.15:
            first.append({**self._container("sidecar"), "restartPolicy": "Always"})
        spec: dict[str, Any] = {
            "nodeName": "worker",
            "containers": containers,
            "initContainers": first,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Always",
        }
        if pick.random() < 0.1:
            spec["resources"] = {
                "requests": {"cpu": "3", "memory": "2Gi"},
                "limits": {"cpu": "3", "memory": "2Gi"},
            }
        if pick.random() < 0.1:
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": pick.choice((8000, 8001))}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }

    def _container(self, name: str) -> dict[str, Any]:
        pick = self._random
        memory = pick.choice(("64Mi", "1Gi", "3Gi", "6Gi", "9Gi"))
        match pick.choice(("guaranteed", "guaranteed", "fraction", "burstable", "none")):
            case "guaranteed":
                amounts = {"cpu": str(pick.choice((1, 2, 2, 3, 4, 6))), "memory": memory}
            case "fraction":
                amounts = {"cpu": pick.choice(("100m", "1500m", "2500m")), "memory": memory}
            case "burstable":
                requests = {"cpu": pick.choice(("1", "250m", "3"))}
                return {"name": name, "image": IMAGE, "resources": {"requests": requests}}
            case _:
                return {"name": name, "image": IMAGE}
        if self.machine.hugepages and pick.random() < 0.3:
            size = {2048: "2Mi", 1048576: "1Gi"}[pick.choice(self.machine.hugepages).page_size]
            amounts[f"hugepages-{size}"] = pick.choice(("1Gi", "2Gi"))
        return {"name": name, "image": IMAGE, "resources": {"requests": amounts, "limits": amounts}}
