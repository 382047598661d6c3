"""What the topology and memory managers find, in words."""

import pytest

from nodewright.model.hints import IMPOSSIBLE, Fitting, Hint, HintList, Offer, by_node
from nodewright.model.memory_reasons import (
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
from nodewright.model.reasons import Reason
from nodewright.model.topology_reasons import HintsMerged, NoCommonNUMA, TopologyPolicyUnknown
from nodewright.render.messages import message
from nodewright.render.sentences import sentence
from nodewright.values.idset import NUMASet
from nodewright.values.quantity import Quantity

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


WIDE = HintList(fitting=Fitting(BOTH, (by_node(2, {0: 1, 1: 1}),), preferred_size=1))
NOT_PREFERRED = Hint(BOTH, preferred=False)

SAID: list[tuple[Reason, str]] = [
    (
        MemoryPlaced(numa=ONE, affinity=ONE, requested=ASKED, reused=()),
        "3Gi memory and 2Mi hugepages-2Mi on NUMA node 0, as agreed",
    ),
    (
        MemoryPlaced(numa=BOTH, affinity=ONE, requested=ASKED[:1], reused=(("memory", GIB),)),
        (
            "3Gi memory on NUMA nodes 0-1, more than the agreed 0, which have too little, "
            "1Gi memory of it taken over from init containers"
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
            "agreed on: NUMA nodes 0-1, with less than 3Gi memory free, "
            f"and no larger set of NUMA nodes with them may be used: {SHOWN}"
        ),
    ),
    (
        GroupViolated(affinity=BOTH, left=LEFT),
        f"NUMA nodes 0-1 cannot be used together: a NUMA node is used alone or in one group ({SHOWN})",
    ),
    (
        DefaultNotPreferred(found=BOTH),
        "a preferred place was promised, but the best left is NUMA nodes 0-1, not preferred",
    ),
    (
        ExtensionNotPreferred(affinity=ONE, found=BOTH),
        "too little memory on NUMA node 0, and the larger NUMA nodes 0-1 not preferred",
    ),
    (
        MemoryRequestInexact(resource="memory", amount=Quantity.parse("1.5Gi")),
        (
            "memory 1536Mi: the memory manager takes only amounts that Kubernetes keeps as whole numbers; "
            "write it in a smaller unit"
        ),
    ),
    (
        MachineMemoryChanged(numa=1, what="memory total", stored="1", expected="2"),
        "NUMA node 1 differs in memory total: stored 1, expected 2",
    ),
    (NoReservedMemory(), "[memorymanager] you should specify the system reserved memory"),
    (TopologyPolicyUnknown(policy="strict"), 'unknown policy: "strict"'),
    (merged(Hint(None, preferred=False), cpu=None), "no resource asks for certain NUMA nodes"),
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
            "cpu prefers none that is possible now: it takes 2 NUMA nodes, for example 0-1"
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
            "policy restricted takes only preferred NUMA nodes, and there are none for container app: "
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
            "policy restricted takes only preferred NUMA nodes, and there are none for the pod as a whole: "
            "cpu prefers none that is possible now: it takes 1 NUMA node, for example 0"
        ),
    ),
]


@pytest.mark.parametrize(("reason", "words"), SAID, ids=lambda one: type(one).__name__)
def test_reasons_in_words(reason: Reason, words: str) -> None:
    assert sentence(reason) == words


def test_what_memory_refuses_is_unexpected_to_the_kubelet() -> None:
    assert message(NoNUMAFits(requested=ASKED, left=LEFT)) == (
        "UnexpectedAdmissionError",
        (
            "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, "
            "no NUMA nodes with enough memory is available, which is unexpected"
        ),
    )
    assert message(MemoryPlaced(numa=ONE, affinity=None, requested=(), reused=())).message
