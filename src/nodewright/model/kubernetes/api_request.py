"""A request to the API server, and the applied object with the pods that its controller creates."""

from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from nodewright.model.kubernetes.cluster_objects import PersistentVolumeClaim
from nodewright.model.kubernetes.objects import ObjectMeta, Pod


class Operation(StrEnum):
    """The kind of a request."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class GroupResource(msgspec.Struct, frozen=True):
    """A kind of objects by its plural and API group, printed as messages name it.

    >>> str(GroupResource("pods")), str(GroupResource("deployments", "apps"))
    ('pods', 'deployments.apps')
    """

    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


CLUSTER_WIDE = frozenset(
    {
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("certificates.k8s.io", "ClusterTrustBundle"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("instancetype.kubevirt.io", "VirtualMachineClusterInstancetype"),
        ("instancetype.kubevirt.io", "VirtualMachineClusterPreference"),
        ("internal.apiserver.k8s.io", "StorageVersion"),
        ("karpenter.k8s.aws", "EC2NodeClass"),
        ("karpenter.sh", "NodeClaim"),
        ("karpenter.sh", "NodePool"),
        ("kueue.x-k8s.io", "AdmissionCheck"),
        ("kueue.x-k8s.io", "ClusterQueue"),
        ("kueue.x-k8s.io", "Cohort"),
        ("kueue.x-k8s.io", "ResourceFlavor"),
        ("kueue.x-k8s.io", "Topology"),
        ("kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("networking.k8s.io", "IPAddress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "ServiceCIDR"),
        ("node.k8s.io", "RuntimeClass"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("resource.k8s.io", "ResourcePoolStatusRequest"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storage.k8s.io", "VolumeAttributesClass"),
        ("storagemigration.k8s.io", "StorageVersionMigration"),
    }
)
"""The kinds whose objects have no namespace, by API group: those of Kubernetes, and custom resources that are read."""


class APIObject(Protocol):
    """Anything with a name."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


T = TypeVar("T", bound=APIObject)
T_co = TypeVar("T_co", bound=APIObject, covariant=True)


class APIRequest(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """A request to create or change an object."""

    operation: Operation
    object: T_co
    old: T_co | None = None
    """The object as it was before an update."""
    subresource: str = ""


def create_request(item: T) -> APIRequest[T]:
    """The request to create the object."""
    return APIRequest(operation=Operation.CREATE, object=item)


def update_request(old: T, new: T, subresource: str = "") -> APIRequest[T]:
    """The request to change the object."""
    return APIRequest(operation=Operation.UPDATE, object=new, old=old, subresource=subresource)


class RollingUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods an update may create above, or miss below, `replicas`: numbers or percentages, as written."""

    max_surge: int | str = 0
    max_unavailable: int | str = 0


class WorkloadController(msgspec.Struct, frozen=True, kw_only=True):
    """How a workload controller creates pods from an object."""

    pod: Pod
    """The first pod, as the API server receives it."""
    replicas: int | None
    """None: one on every node."""
    intermediate_resources: tuple[GroupResource, ...] = ()
    """The objects between the workload and its pods: the ReplicaSet of a Deployment, the Job of a CronJob, a
    ControllerRevision."""
    volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    """Claims to volumes that each of its pods gets (StatefulSet); their names are those of the templates."""
    max_batch: int = 0
    """As of `ExpansionPlan`."""
    rolling_update: RollingUpdate | None = None
    """How it replaces its pods; None: it deletes them before it creates others."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """An object as applied by a user."""

    api_version: str
    kind: str
    resource: GroupResource
    object: APIObject
    """With the fields that decisions depend on; for most kinds only the metadata. A pod has its defaults."""
    is_namespaced: bool = True
    is_part: bool = False
    """Whether these are only the pods of one template of a custom resource, which is applied by itself."""
    is_stored: bool = False
    """Whether an API server has created the object: it has a uid."""
    controller: WorkloadController | None = None
    """None: it creates no pods."""
    ephemeral_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    """Claims of ephemeral volumes, created and deleted with each pod; their names are those of the pod's volumes."""

    @property
    def namespace(self) -> str:
        """The object's namespace; empty if it is in none."""
        return self.object.metadata.namespace if self.is_namespaced else ""

    @property
    def name(self) -> str:
        """The object's name, or its `generateName`."""
        return self.object.metadata.name or self.object.metadata.generate_name
