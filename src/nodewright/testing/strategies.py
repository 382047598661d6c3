"""Hypothesis strategies for amounts and pods."""

from hypothesis import strategies as st

from nodewright.model.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceList,
    ResourceRequirements,
)
from nodewright.values.quantity import Quantity

SUFFIXES = (
    "",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e3",
    "E-2",
    "e7",
)
RESOURCES = ("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/device")


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Texts that Kubernetes takes for amounts."""
    sign = draw(st.sampled_from(("", "", "", "-", "+")))
    whole = draw(st.integers(0, 10 ** draw(st.integers(1, 25))))
    fraction = draw(st.sampled_from(("", "", "", ".", ".5", ".000", ".125", ".000000000001", ".1")))
    return f"{sign}{whole}{fraction}{draw(st.sampled_from(SUFFIXES))}"


def quantities() -> st.SearchStrategy[Quantity]:
    """Amounts of every format, size and sign."""
    return quantity_texts().map(Quantity.parse)


def requests_like() -> st.SearchStrategy[Quantity]:
    """Amounts as pods ask for: not negative, often equal, some fine, some zero."""
    return _REQUESTS


def resource_lists() -> st.SearchStrategy[ResourceList]:
    """Amounts by resource."""
    return _RESOURCE_LISTS


def requirements() -> st.SearchStrategy[ResourceRequirements]:
    """Requests and limits, which need not fit each other."""
    return _REQUIREMENTS


# Made once: hypothesis looks into every strategy that it is given anew.
_USUAL = ("0", "1", "2", "100m", "250m", "1500m", "64Mi", "128Mi", "1Gi", "1.5Gi", "100M", "1m", "0.1")
_REQUESTS = st.sampled_from(tuple(map(Quantity.parse, _USUAL))) | st.integers(0, 10**12).map(
    lambda units: Quantity.parse(str(units))
)
_RESOURCE_LISTS = st.lists(st.tuples(st.sampled_from(RESOURCES), _REQUESTS), max_size=4).map(dict)
_REQUIREMENTS = st.tuples(_RESOURCE_LISTS, _RESOURCE_LISTS).map(
    lambda lists: ResourceRequirements(requests=lists[0], limits=lists[1])
)
_CONTAINERS = st.lists(_REQUIREMENTS, min_size=1, max_size=3)
_INIT_CONTAINERS = st.lists(st.tuples(_REQUIREMENTS, st.booleans()), max_size=4)
_POD_LEVEL = st.none() | _REQUIREMENTS
_OVERHEAD: st.SearchStrategy[ResourceList] = st.just({}) | _RESOURCE_LISTS


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods with containers, init containers, sidecars, overhead and pod-level resources."""
    main = draw(_CONTAINERS)
    init = draw(_INIT_CONTAINERS)
    pod_level = draw(_POD_LEVEL)
    spec = PodSpec(
        containers=tuple(Container(name=f"c{i}", resources=each) for i, each in enumerate(main)),
        init_containers=tuple(
            Container(name=f"i{i}", resources=each, restart_policy="Always" if keeps_running else None)
            for i, (each, keeps_running) in enumerate(init)
        ),
        overhead=draw(_OVERHEAD),
        resources=pod_level,
    )
    return Pod(metadata=ObjectMeta(name="pod"), spec=spec)
