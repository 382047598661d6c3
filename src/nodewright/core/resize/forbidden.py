"""Does the API server's admission let the request through to the node at all?"""

from collections.abc import Collection, Iterator, Mapping

from nodewright.core.requests import pod_requests
from nodewright.core.resize.amounts import RESIZABLE
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.resize_reasons import (
    Excess,
    ResizeBeyondNode,
    ResizeFeaturesMissing,
    ResizeOnOtherSystem,
)
from nodewright.model.resource_names import CPU
from nodewright.values.quantity import ZERO

OS_LABEL = "kubernetes.io/os"
INIT_CONTAINERS = "InPlacePodVerticalScalingInitContainers"
POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"


def features_missing(
    desired: Pod, current: Pod, *, node: str, declared: Collection[str]
) -> ResizeFeaturesMissing | None:
    """The features that the resize needs and the node does not declare; None: it has them all.

    Follows: v1.36, plugin/pkg/admission/nodedeclaredfeatures/admission.go, validatePodUpdate;
        component-helpers/nodedeclaredfeatures/features/inplacepodresize.
    """
    lacking = tuple(name for name in sorted(_needed(desired, current)) if name not in declared)
    return ResizeFeaturesMissing(node=node, features=lacking) if lacking else None


def _needed(desired: Pod, current: Pod) -> Iterator[str]:
    if desired.spec.resources != current.spec.resources:
        yield POD_LEVEL
    passing = zip(desired.spec.init_containers, current.spec.init_containers, strict=True)
    if any(not other.is_sidecar and one.resources != other.resources for one, other in passing):
        yield INIT_CONTAINERS


def on_other_system(labels: Mapping[str, str], *, node: str) -> ResizeOnOtherSystem | None:
    """The system of a node that cannot resize; None: it runs Linux, or does not say.

    Follows: v1.36, plugin/pkg/admission/podresize/admission.go, validateLinuxNode.
    """
    system = labels.get(OS_LABEL, "linux")
    return None if system == "linux" else ResizeOnOtherSystem(node=node, os=system)


def beyond_node(desired: Pod, allocatable: ResourceList) -> ResizeBeyondNode | None:
    """What the pod would request beyond all that the node has for pods; None: nothing.

    A node that is full is another matter: then the kubelet waits.

    Follows: v1.36, plugin/pkg/admission/podresize/admission.go, validateRequestsWithinAllocatable.
    """
    requests = pod_requests(desired)
    excesses = []
    for name in RESIZABLE:
        wants, has = requests.get(name, ZERO), allocatable.get(name, ZERO)
        if wants > has:
            milli = name == CPU
            excesses.append(
                Excess(
                    resource=name,
                    requested=wants.milli_value() if milli else wants.value(),
                    allocatable=has.milli_value() if milli else has.value(),
                )
            )
    return ResizeBeyondNode(excesses=tuple(excesses)) if excesses else None
