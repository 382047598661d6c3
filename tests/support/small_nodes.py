"""Small nodes with NUMA nodes, managers and pods in a few words, and strategies for them."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod

MIB = 1 << 20
GPU = "example.com/gpu"
ContainerRequests = Mapping[str, int]
"""`cpu` in thousandths, `memory` in MiB, devices in pieces."""


def a_small_profile(
    numa: int = 2, cores: int = 4, smt: int = 1, memory_mib: int = 1024, gpus: int = 0, **kubelet: Any
) -> NodeProfile:
    """A node with so many NUMA nodes of so many cores each, and so many GPUs on each; the threads of a core adjoin.

    One CPU and 8 MiB are reserved.

    >>> a_small_profile(cores=2).spec.machine_info.topology[1].cores[0].thread_ids
    (2,)
    """
    topology = [
        {
            "node_id": at,
            "memory": memory_mib * MIB,
            "distances": [10 if other == at else 20 for other in range(numa)],
            "cores": [
                {
                    "core_id": core,
                    "socket_id": at,
                    "thread_ids": [(at * cores + core) * smt + thread for thread in range(smt)],
                }
                for core in range(cores)
            ],
        }
        for at in range(numa)
    ]
    machine = {
        "num_cores": numa * cores * smt,
        "num_physical_cores": numa * cores,
        "num_sockets": numa,
        "memory_capacity": numa * memory_mib * MIB,
        "topology": topology,
    }
    if kubelet.get("memoryManagerPolicy") == "Static":
        kubelet["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "8Mi"}}]
    reserved = {"systemReserved": {"cpu": "1", "memory": "8Mi"}, "evictionHard": {}}
    devices = {
        GPU: [
            {"id": f"gpu{at * gpus + number}", "numaNodes": [at]}
            for at in range(numa)
            for number in range(gpus)
        ]
    }
    spec = {
        "machineInfo": machine,
        "rootFsCapacity": 1 << 40,
        "kubeletConfiguration": {**reserved, **kubelet},
        "devices": devices if gpus else {},
    }
    return decode({"metadata": {"name": "node1"}, "spec": spec}, NodeProfile)


def a_numa_pod(
    name: str,
    *containers: ContainerRequests,
    init: tuple[ContainerRequests, ...] = (),
    limits: bool = True,
    **spec: Any,
) -> Pod:
    """A pod whose containers (c0, c1, ...; i0, ...) have these requests, with equal limits unless there are none.

    >>> pod = a_numa_pod("web", {"cpu": 2000, "memory": 64})
    >>> {name: str(amount) for name, amount in pod.spec.containers[0].resources.limits.items()}
    {'cpu': '2', 'memory': '64Mi'}
    """
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [_container(f"c{at}", asked, limits) for at, asked in enumerate(containers)],
            "initContainers": [_container(f"i{at}", asked, limits) for at, asked in enumerate(init)],
            **spec,
        },
    }
    return decode(document, Pod)


def _container(name: str, asked: ContainerRequests, limits: bool) -> dict[str, Any]:
    texts = {resource: _text(resource, amount) for resource, amount in asked.items()}
    limited = texts if limits else {name: text for name, text in texts.items() if "/" in name}
    return {"name": name, "resources": {"requests": texts, "limits": limited}}


def _text(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return f"{amount}Mi" if resource == "memory" else str(amount)


@st.composite
def profiles(draw: st.DrawFn, max_numa: int = 2) -> NodeProfile:
    """Nodes of few CPUs with resource managers."""
    options = draw(
        st.sampled_from(
            ((), (), ("full-pcpus-only",), ("distribute-cpus-across-numa",), ("strict-cpu-reservation",))
        )
    )
    static = draw(st.integers(0, 9)) > 0
    return a_small_profile(
        numa=draw(st.integers(1, max_numa)),
        cores=draw(st.integers(2, 4)),
        smt=draw(st.sampled_from((1, 2))),
        memory_mib=draw(st.integers(40, 64)),
        gpus=draw(st.integers(0, 2)),
        cpuManagerPolicy="static" if static else "none",
        cpuManagerPolicyOptions=dict.fromkeys(options, "true") if static else {},
        memoryManagerPolicy=draw(st.sampled_from(("None", "Static"))),
        topologyManagerPolicy=draw(
            st.sampled_from(("none", "best-effort", "restricted", "restricted", "single-numa-node"))
        ),
        topologyManagerScope=draw(st.sampled_from(("container", "pod"))),
    )


@st.composite
def guaranteed_pods(draw: st.DrawFn, name: str, *, largest: int = 5) -> Pod:
    """Pods, mostly Guaranteed, with up to two containers and an init container."""
    search_strategy = st.builds(
        lambda cpu, memory, gpu: {"cpu": cpu, "memory": memory} | ({GPU: gpu} if gpu else {}),
        st.one_of(st.integers(1, largest).map(lambda count: count * 1000), st.sampled_from((500, 1500))),
        st.integers(1, 12 * largest),
        st.sampled_from((0, 0, 1, 2)),
    )
    return a_numa_pod(
        name,
        *draw(st.lists(search_strategy, min_size=1, max_size=2)),
        init=tuple(draw(st.lists(search_strategy, max_size=1))),
        limits=draw(st.integers(0, 5)) > 0,
    )
