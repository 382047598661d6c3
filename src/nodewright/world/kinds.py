"""Which resource an object is of: its plural, and whether it is in a namespace."""

from dataclasses import dataclass, field
from typing import NamedTuple

from nodewright.model.api_request import GroupResource

_CLUSTER_WIDE = frozenset(
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
        ("networking.k8s.io", "IPAddress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "ServiceCIDR"),
        ("node.k8s.io", "RuntimeClass"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storage.k8s.io", "VolumeAttributesClass"),
    }
)


_CONFIGURATION = frozenset(
    {"apiserver.k8s.io", "audit.k8s.io", "kind.x-k8s.io", "kubeadm.k8s.io", "nodewright.dev"}
)


def is_configuration(api_version: str) -> bool:
    """Whether objects of that version are read by programs and never get to an API server.

    >>> [is_configuration(one) for one in ("kubelet.config.k8s.io/v1beta1", "kustomize.config.k8s.io/v1beta1", "v1")]
    [True, True, False]
    """
    group = api_version.rpartition("/")[0]
    return group in _CONFIGURATION or group.endswith(".config.k8s.io")


class Served(NamedTuple):
    """A resource, and whether its objects are in namespaces."""

    resource: GroupResource
    is_namespaced: bool


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds that are served: those of Kubernetes, and those that CustomResourceDefinitions bring."""

    custom: dict[tuple[str, str], Served] = field(default_factory=dict)
    """By API group and kind."""

    def served(self, api_version: str, kind: str) -> Served:
        """The resource of that kind; for kinds that nothing is known of the plural is guessed, as kubectl does."""
        group = api_version.rpartition("/")[0]
        custom = self.custom.get((group, kind))
        if custom is not None:
            return custom
        is_namespaced = (group, kind) not in _CLUSTER_WIDE and not is_configuration(api_version)
        return Served(GroupResource(guessed_plural(kind), group), is_namespaced)


def guessed_plural(kind: str) -> str:
    """The plural of a kind as its resource is most likely called.

    Follows: v1.36, apimachinery/pkg/api/meta/restmapper.go, UnsafeGuessKindToResource.

    >>> [guessed_plural(kind) for kind in ("Deployment", "Ingress", "NetworkPolicy", "Endpoints")]
    ['deployments', 'ingresses', 'networkpolicies', 'endpoints']
    """
    singular = kind.lower()
    if singular.endswith("endpoints"):
        return singular
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
