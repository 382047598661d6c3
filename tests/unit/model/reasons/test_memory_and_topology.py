"""Our sentences about facts of the topology and memory managers."""

import pytest

from nodewright.model.reasons.memory import (
    AffinityCannotGrow,
    DefaultNotPreferred,
    ExtensionNotPreferred,
    GroupViolated,
    MachineMemoryChanged,
    MemoryPlaced,
    MemoryRequestInexact,
    NoNUMAFits,
    NoReservedMemory,
    NUMAMemoryLeft,
)
from nodewright.model.reasons.reason import Reason, kubelet_text, sentence
from nodewright.model.reasons.topology import HintsMerged, NoCommonNUMA, TopologyPolicyUnknown
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.topology_hints import (
    IMPOSSIBLE,
    Fitting,
    Hint,
    HintList,
    Offer,
    demand_by_numa_node,
)

GIB = 2**30
ASKED = (("memory", 3 * GIB), ("hugepages-2Mi", 2**21))
LEFT = (
    NUMAMemoryLeft(
        numa=0, resource="memory", free=GIB, allocatable=4 * GIB, group=NUMASet.of(0), is_used=True
    ),
    NUMAMemoryLeft(
        numa=1, resource="memory", free=GIB, allocatable=4 * GIB, group=NUMASet.of(1), is_used=False
    ),
    NUMAMemoryLeft(
        numa=2, resource="memory", free=0, allocatable=4 * GIB, group=NUMASet.of(2, 3), is_used=True
    ),
)
ONE, TWO, BOTH = NUMASet.of(0), NUMASet.of(1), NUMASet.of(0, 1)
SHOWN = (
    "0 has 1Gi of 4Gi memory left (used alone), 1 has 1Gi of 4Gi memory left, "
    "2 has 0 of 4Gi memory left (used together as 2-3)"
)


def merged(hint: Hint, *, proved: bool = True, **offered: HintList | None) -> HintsMerged:
    offers = tuple(Offer(name, {name: hints}) for name, hints in offered.items())
    return HintsMerged(policy="restricted", numa=BOTH, offers=offers, hint=hint, proved=proved)


def prefers(numa: NUMASet) -> HintList:
    return HintList((Hint(numa, preferred=True),))


WIDE = HintList(fitting=Fitting(BOTH, (demand_by_numa_node(2, {0: 1, 1: 1}),), preferred_size=1))
NOT_PREFERRED = Hint(BOTH, preferred=False)

SENTENCES: list[tuple[Reason, str]] = [
    (
        MemoryPlaced(numa=ONE, affinity=ONE, requested=ASKED, reused=()),
        "3Gi memory and 2Mi hugepages-2Mi on NUMA node 0, as in the affinity",
    ),
    (
        MemoryPlaced(numa=BOTH, affinity=ONE, requested=ASKED[:1], reused=(("memory", GIB),)),
        (
            "3Gi memory on NUMA nodes 0-1, extended from the affinity 0, which has too little, "
            "1Gi memory of it reused from init containers"
        ),
    ),
    (
        MemoryPlaced(numa=ONE, affinity=None, requested=(), reused=()),
        "nothing on NUMA node 0, chosen by the memory manager",
    ),
    (
        NoNUMAFits(requested=ASKED[:1], left=LEFT),
        f"no NUMA nodes that may be used together have 3Gi memory free: {SHOWN}",
    ),
    (
        AffinityCannotGrow(affinity=BOTH, requested=ASKED[:1], left=LEFT),
        (
            "the affinity is NUMA nodes 0-1, with less than 3Gi memory free, "
            f"and no larger set of NUMA nodes that includes it may be used: {SHOWN}"
        ),
    ),
    (
        GroupViolated(affinity=BOTH, left=LEFT),
        f"NUMA nodes 0-1 cannot be used together: a NUMA node is used alone or in one group ({SHOWN})",
    ),
    (
        DefaultNotPreferred(found=BOTH),
        "the hint was preferred, but the best affinity left, NUMA nodes 0-1, is not",
    ),
    (
        ExtensionNotPreferred(affinity=ONE, found=BOTH),
        "too little memory on NUMA node 0, and the larger set, NUMA nodes 0-1, is not preferred",
    ),
    (
        MemoryRequestInexact(resource="memory", amount=Quantity.parse("1.5Gi")),
        (
            "memory 1536Mi: the memory manager accepts only amounts that Kubernetes stores as integers; "
            "write it in a smaller unit"
        ),
    ),
    (
        MachineMemoryChanged(numa=1, what="memory total", stored="1", expected="2"),
        "NUMA node 1 differs in memory total: stored 1, expected 2",
    ),
    (NoReservedMemory(), "[memorymanager] you should specify the system reserved memory"),
    (TopologyPolicyUnknown(policy="strict"), 'unknown policy: "strict"'),
    (merged(Hint(None, preferred=False), cpu=None), "no resource prefers particular NUMA nodes"),
    (merged(Hint(ONE, preferred=True), cpu=prefers(ONE)), "cpu settles on NUMA node 0"),
    (
        merged(
            Hint(None, preferred=True), cpu=prefers(ONE), gpu=prefers(ONE), nic=prefers(ONE), proved=False
        ),
        "cpu, gpu and nic agree on any NUMA node; the search was cut short, there may be better ones",
    ),
    (
        merged(NOT_PREFERRED, cpu=WIDE),
        (
            "NUMA nodes 0-1 for cpu, not preferred: "
            "cpu has no preferred NUMA nodes now: it needs 2 NUMA nodes, for example 0-1"
        ),
    ),
    (
        merged(Hint(None, preferred=False), cpu=prefers(ONE), gpu=prefers(TWO)),
        (
            "no NUMA nodes for cpu and gpu, not preferred: "
            "no set of NUMA nodes is preferred for all: cpu prefers {0}, gpu prefers {1}"
        ),
    ),
    (
        NoCommonNUMA(
            scope="container", container="app", pod_level=False, merged=merged(NOT_PREFERRED, cpu=IMPOSSIBLE)
        ),
        (
            "policy restricted accepts only preferred NUMA nodes, and there are none for container app: "
            "no NUMA nodes have enough cpu free"
        ),
    ),
    (
        NoCommonNUMA(
            scope="pod",
            container="",
            pod_level=False,
            merged=merged(NOT_PREFERRED, cpu=HintList((Hint(ONE, preferred=False),))),
        ),
        (
            "policy restricted accepts only preferred NUMA nodes, and there are none for the pod as a whole: "
            "cpu has no preferred NUMA nodes now: it needs 1 NUMA node, for example 0"
        ),
    ),
]


@pytest.mark.parametrize(("reason", "words"), SENTENCES, ids=lambda value: type(value).__name__)
def test_facts_have_sentences(reason: Reason, words: str) -> None:
    assert sentence(reason) == words


def test_memory_errors_are_unexpected_admission_errors() -> None:
    assert kubelet_text(NoNUMAFits(requested=ASKED, left=LEFT)) == (
        "UnexpectedAdmissionError",
        (
            "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, "
            "no NUMA nodes with enough memory is available, which is unexpected"
        ),
    )
    assert kubelet_text(MemoryPlaced(numa=ONE, affinity=None, requested=(), reused=())).message
