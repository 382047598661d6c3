"""What counts as a pod's requests: the options of the sums, and how a release and its gates choose them."""

import msgspec

from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates


class RequestRules(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """How a kubelet or API server counts what pods request, by its release and gates."""

    pod_level: bool
    """The gate PodLevelResources is on."""
    pod_level_huge_pages: bool
    """As in `ReleaseRules`; so are the next two."""
    resize_in_conditions: bool
    reclaimable_as_scheduled: bool
    in_place_resize: bool
    """Resources in the containers' status count: the gate InPlacePodVerticalScaling."""
    pod_level_resize: bool
    """The same for the pod level: the gate InPlacePodLevelResourcesVerticalScaling."""
    claims: bool
    """The scheduler's predicates count node allocatable resources of claims: the gate DRANodeAllocatableResources."""

    @classmethod
    def of(cls, gates: FeatureGates) -> "RequestRules":
        """The rules under these gates."""
        return cls(
            pod_level=gates["PodLevelResources"],
            pod_level_huge_pages=gates.rules.pod_level_huge_pages,
            resize_in_conditions=gates.rules.resize_in_conditions,
            reclaimable_as_scheduled=gates.rules.reclaimable_as_scheduled,
            in_place_resize=gates["InPlacePodVerticalScaling"],
            pod_level_resize=gates["InPlacePodLevelResourcesVerticalScaling"],
            claims=gates["DRANodeAllocatableResources"],
        )

    def options(
        self, *, exclude_overhead: bool = False, use_status: bool = False, use_claims: bool = False
    ) -> "RequestOptions":
        """The options with which this kubelet sums up requests; with status: as it counts a running pod."""
        return RequestOptions(
            exclude_overhead=exclude_overhead,
            skip_pod_level_resources=not self.pod_level,
            use_status_resources=use_status and self.in_place_resize,
            in_place_pod_level_resources_vertical_scaling=use_status and self.pod_level_resize,
            use_dra_node_allocatable_resource_claim_status=use_claims and self.claims,
            pod_level_huge_pages=self.pod_level_huge_pages,
            resize_in_conditions=self.resize_in_conditions,
        )


NEWEST_REQUEST_RULES = RequestRules.of(DEFAULT_GATES)
"""How the newest release counts by default."""


class RequestOptions(msgspec.Struct, frozen=True, rename="camel"):
    """What counts in addition to the containers' requests and limits.

    Follows: v1.36, component-helpers/resource/helpers.go, PodResourcesOptions.
    """

    exclude_overhead: bool = False
    """Exclude `spec.overhead`."""
    skip_pod_level_resources: bool = False
    """Ignore `spec.resources` of the pod."""
    skip_container_level_resources: bool = False
    """Requests: start from zero instead of the containers' sum. Limits ignore this option."""
    use_status_resources: bool = False
    """Count the resources in the containers' status during a resize."""
    in_place_pod_level_resources_vertical_scaling: bool = False
    """The same for the pod level; only together with `use_status_resources`."""
    use_dra_node_allocatable_resource_claim_status: bool = msgspec.field(
        default=False, name="useDRANodeAllocatableResourceClaimStatus"
    )
    """Add the node allocatable resources of resource claims to the requests."""
    non_missing_container_requests: ResourceList = {}
    """The requests of containers that do not set these names."""
    pod_level_huge_pages: bool = True
    """As in `ReleaseRules`; so is the next."""
    resize_in_conditions: bool = True


SPEC_ONLY = RequestOptions()
"""The spec alone: containers, pod level and overhead."""

USE_STATUS = RequestOptions(use_status_resources=True, in_place_pod_level_resources_vertical_scaling=True)
"""As the scheduler and the kubelet count a running pod, resizes in progress included."""
