"""Names of objects in a cluster as kubectl writes them: `pod/web-0`, `deploy/api`, `pods`, `deploy,sts`."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from nodewright.cluster.client.cluster_api import api_path
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors

_SPECIAL = str.maketrans({"\\": "\\\\", ",": "\\,", "=": "\\="})


def name_selector(name: str) -> str:
    r"""The field selector of the object of a name, whatever the name is.

    Follows: v1.36, apimachinery/pkg/fields/selector.go, OneTermEqualSelector and EscapeValue.

    >>> name_selector("web"), name_selector("a,b=c")
    ('metadata.name=web', 'metadata.name=a\\,b\\=c')
    """
    return f"metadata.name={name.translate(_SPECIAL)}"


class ResourceKind(msgspec.Struct, frozen=True):
    """A kind of objects and where the API server has it."""

    plural: str
    kind: str
    group_version: str
    """The version is empty for other systems' groups: the one that the API server prefers."""
    short_names: tuple[str, ...] = ()
    is_namespaced: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the kind, in lower case."""
        return (self.plural, self.kind.lower(), *self.short_names)

    def path(self, namespace: str, name: str = "") -> str:
        """The path of an object or of the list; an empty namespace stands for all.

        >>> KINDS["deploy"].path("shop", "api")
        '/apis/apps/v1/namespaces/shop/deployments/api'
        """
        root = "/api" if "/" not in self.group_version else "/apis"
        scope = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return api_path(f"{root}/{self.group_version}", *scope, self.plural, *((name,) if name else ()))


_TABLE = (
    ResourceKind("pods", "Pod", "v1", ("po",)),
    ResourceKind("nodes", "Node", "v1", ("no",), is_namespaced=False),
    ResourceKind("deployments", "Deployment", "apps/v1", ("deploy",)),
    ResourceKind("statefulsets", "StatefulSet", "apps/v1", ("sts",)),
    ResourceKind("daemonsets", "DaemonSet", "apps/v1", ("ds",)),
    ResourceKind("replicasets", "ReplicaSet", "apps/v1", ("rs",)),
    ResourceKind("jobs", "Job", "batch/v1"),
    ResourceKind("cronjobs", "CronJob", "batch/v1", ("cj",)),
    ResourceKind("replicationcontrollers", "ReplicationController", "v1", ("rc",)),
    ResourceKind("resourcequotas", "ResourceQuota", "v1", ("quota",)),
    ResourceKind("limitranges", "LimitRange", "v1", ("limits",)),
    ResourceKind("services", "Service", "v1", ("svc",)),
    ResourceKind("poddisruptionbudgets", "PodDisruptionBudget", "policy/v1", ("pdb",)),
    ResourceKind("priorityclasses", "PriorityClass", "scheduling.k8s.io/v1", ("pc",), is_namespaced=False),
    ResourceKind("runtimeclasses", "RuntimeClass", "node.k8s.io/v1", is_namespaced=False),
    ResourceKind("resourceclaims", "ResourceClaim", "resource.k8s.io/v1"),
    ResourceKind("resourceclaimtemplates", "ResourceClaimTemplate", "resource.k8s.io/v1"),
    ResourceKind("deviceclasses", "DeviceClass", "resource.k8s.io/v1", is_namespaced=False),
    ResourceKind("resourceslices", "ResourceSlice", "resource.k8s.io/v1", is_namespaced=False),
    ResourceKind("configmaps", "ConfigMap", "v1", ("cm",)),
    ResourceKind("virtualmachines", "VirtualMachine", "kubevirt.io/", ("vm", "vms")),
    ResourceKind("virtualmachineinstances", "VirtualMachineInstance", "kubevirt.io/", ("vmi", "vmis")),
    ResourceKind("verticalpodautoscalers", "VerticalPodAutoscaler", "autoscaling.k8s.io/", ("vpa",)),
    ResourceKind("clusterqueues", "ClusterQueue", "kueue.x-k8s.io/", ("cq",), is_namespaced=False),
    ResourceKind("resourceflavors", "ResourceFlavor", "kueue.x-k8s.io/", ("rf",), is_namespaced=False),
    ResourceKind("nodepools", "NodePool", "karpenter.sh/", is_namespaced=False),
    ResourceKind("nodeclaims", "NodeClaim", "karpenter.sh/", is_namespaced=False),
    ResourceKind("ec2nodeclasses", "EC2NodeClass", "karpenter.k8s.aws/", ("ec2nc",), is_namespaced=False),
    ResourceKind("machinedeployments", "MachineDeployment", "cluster.x-k8s.io/", ("md",)),
    ResourceKind("machinesets", "MachineSet", "cluster.x-k8s.io/", ("ms",)),
    ResourceKind("machinepools", "MachinePool", "cluster.x-k8s.io/", ("mp",)),
)
KINDS = {name: kind for kind in _TABLE for name in kind.names}
"""Kinds by each of their names; kubectl's own short names."""
PODS, NODES = KINDS["pods"], KINDS["nodes"]
WORKLOADS = ("deploy", "sts", "ds", "cronjobs", "jobs", "rs", "rc", "pods")
"""The kinds that create pods, owners before what they own."""
_CATEGORIES = {
    "all": WORKLOADS,
    "karpenter": ("nodepools", "nodeclaims", "ec2nodeclasses"),
    "cluster-api": ("machinedeployments", "machinesets", "machinepools"),
}
"""As the API server has them."""
_QUALIFIED = {f"{kind.plural}.{kind.group_version.rpartition('/')[0]}": kind for kind in _TABLE}


class ClusterName(msgspec.Struct, frozen=True):
    """An object of a kind, or all objects of it."""

    kind: ResourceKind
    name: str = ""
    """Empty: all objects of the kind."""
    word: str = ""
    """What the command line says; `pod web-0` is `pod/web-0`."""


class SplitWords(msgspec.Struct, frozen=True):
    """The words of a command line, divided into names of objects and all others, each in order."""

    names: tuple[ClusterName, ...]
    others: tuple[str, ...]


VOLUMES = tuple(
    ClusterName(kind, word=kind.plural)
    for kind in (
        ResourceKind("persistentvolumeclaims", "PersistentVolumeClaim", "v1"),
        ResourceKind("persistentvolumes", "PersistentVolume", "v1", is_namespaced=False),
    )
)
"""What decides from which nodes the volumes of pods are accessible."""
CLAIMS = tuple(
    ClusterName(KINDS[kind], word=kind)
    for kind in ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
)
"""What decides which devices the resource claims of pods get."""
QUEUES = tuple(ClusterName(KINDS[kind], word=kind) for kind in ("clusterqueues", "resourceflavors"))
"""What Kueue lets the pods of a queue have."""
TAINT_RULES = ClusterName(
    ResourceKind("devicetaintrules", "DeviceTaintRule", "resource.k8s.io/v1beta2", is_namespaced=False),
    word="devicetaintrules",
)
"""Decide as well, in clusters that serve them."""


def split_words(words: Sequence[str], is_file: Callable[[str], bool]) -> SplitWords:
    """The words that name objects of a cluster: `pod/web-0`, `pods`, `deploy,sts`, and `pod web-0 web-1`.

    A word that is the name of a file is a file.
    Errors: InputError for a name that no object can have.

    >>> split_words(["po", "web-0", "deploy/api"], lambda word: False).names[1].word
    'deploy/api'
    """
    names: list[ClusterName] = []
    others: list[str] = []
    kinds: tuple[ResourceKind, ...] = ()
    has_names = False
    for word in words:
        named_kinds, separator, name = word.partition("/")
        of_word = () if is_file(word) else kinds_of(named_kinds)
        if of_word and (name or not separator):
            names += () if not kinds or has_names else _whole(kinds)
            kinds, has_names = (), False
            if separator:
                names += [ClusterName(kind, name, word) for kind in of_word]
            else:
                kinds = of_word
        elif kinds and not separator and not is_file(word) and "." not in word[:1]:
            names += [ClusterName(kind, word, f"{kind.kind.lower()}/{word}") for kind in kinds]
            has_names = True
        else:
            others.append(word)
    names += () if not kinds or has_names else _whole(kinds)
    if faults := list(_faults(names)):
        raise InputError(faults)
    return SplitWords(tuple(names), tuple(others))


def _whole(kinds: Iterable[ResourceKind]) -> Iterator[ClusterName]:
    return (ClusterName(kind, "", kind.plural) for kind in kinds)


def kinds_of(text: str) -> tuple[ResourceKind, ...]:
    """The kinds that a word such as `deploy`, `pods,sts` or `all` names; empty if one of them is unknown."""
    names = [each for part in text.lower().split(",") for each in _CATEGORIES.get(part, (part,))]
    kinds = [KINDS.get(name) or _QUALIFIED.get(name) for name in names]
    return tuple(kind for kind in kinds if kind) if all(kinds) else ()


def _faults(names: Iterable[ClusterName]) -> Iterator[Fault]:
    for name in names:
        for rule in dns1123_subdomain_errors(name.name) if name.name else ():
            yield Fault(source=name.word, value=name.name, rule=rule)
