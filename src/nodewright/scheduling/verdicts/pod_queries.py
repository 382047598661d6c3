"""Pods as questions to nodes: without names and without what no kubelet judges, so that equal pods share verdicts."""

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR, CONFIG_SOURCE
from nodewright.fleet.simulation.pod_templates import selects_nodes
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.model.reasons.predicates import NodeAffinityMismatch

_KEPT_ANNOTATIONS = (CONFIG_MIRROR, CONFIG_SOURCE)
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
NAME, NAMESPACE = "pod", "pods"


class PodQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as the question to nodes.

    Pods with equal keys get equal answers from every node without custom policies; ``own_key`` holds for all nodes.
    """

    key: str
    own_key: str
    anonymous: Pod
    """The pod without names, and without its node selector and affinity."""
    pod: Pod
    """The pod as it is."""
    uid: str
    """The pod's uid."""
    size: int
    """The bytes of the pod as JSON."""
    selects_nodes: bool
    """Whether the labels of a node matter."""

    @property
    def priority(self) -> int:
        """The pod's priority."""
        return self.pod.spec.priority or 0

    def label_mismatch(self, node: str, labels: Mapping[str, str]) -> NodeAffinityMismatch | None:
        """Why the node's labels refuse the pod; None: they do not."""
        return affinity_mismatch(self.pod.spec, node, labels) if self.selects_nodes else None


_ENCODER = msgspec.json.Encoder(order="sorted", enc_hook=str)


def pod_query(pod: Pod) -> PodQuery:
    """The question about a pod; its node, if it has one, does not matter."""
    anonymous = anonymous_pod(pod)
    key, _ = sized_digest(anonymous)
    # A custom policy sees labels and annotations as well.
    own = replace(
        anonymous,
        metadata=replace(
            anonymous.metadata, labels=pod.metadata.labels, annotations=pod.metadata.annotations
        ),
    )
    return PodQuery(
        key=key,
        own_key=key if own == anonymous else sized_digest(own)[0],
        anonymous=anonymous,
        pod=pod,
        uid=pod.uid,
        size=len(_ENCODER.encode(pod)),
        selects_nodes=selects_nodes(pod.spec),
    )


def sized_digest(value: object) -> tuple[str, int]:
    """A digest of the content of a value, and the bytes of its JSON."""
    content = _ENCODER.encode(value)
    return hashlib.blake2b(content, digest_size=16).hexdigest(), len(content)


def anonymous_pod(pod: Pod) -> Pod:
    """The pod without identity, and without what does not reach the kubelet's admission."""
    annotations = {
        name: text
        for name, text in pod.metadata.annotations.items()
        if name in _KEPT_ANNOTATIONS or name.startswith(_APP_ARMOR)
    }
    return Pod(
        metadata=ObjectMeta(name=NAME, namespace=NAMESPACE, annotations=annotations),
        spec=_bare_spec(pod.spec),
    )


_NO_SPEC, _NO_CONTAINER = PodSpec(), Container()
_UNREAD = {
    name: getattr(_NO_SPEC, name)
    for name in (
        "node_name",
        "node_selector",
        "affinity",
        "ephemeral_containers",
        "hostname",
        "hostname_override",
        "subdomain",
        "set_hostname_as_fqdn",
        "host_aliases",
        "dns_policy",
        "dns_config",
        "scheduler_name",
        "service_account_name",
        "service_account",
        "image_pull_secrets",
        "volumes",
        "topology_spread_constraints",
        "readiness_gates",
        "scheduling_gates",
        "active_deadline_seconds",
        "termination_grace_period_seconds",
    )
}
"""Fields of a pod that no admission handler reads; node selector and affinity are judged for each node."""
_UNREAD_OF_CONTAINER = {
    name: getattr(_NO_CONTAINER, name)
    for name in (
        "image",
        "image_pull_policy",
        "command",
        "args",
        "working_dir",
        "env",
        "env_from",
        "volume_mounts",
        "volume_devices",
        "lifecycle",
        "liveness_probe",
        "readiness_probe",
        "startup_probe",
        "termination_message_path",
        "termination_message_policy",
        "stdin",
        "stdin_once",
        "tty",
    )
}


def _bare_spec(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=tuple(replace(container, **_UNREAD_OF_CONTAINER) for container in spec.containers),
        init_containers=tuple(
            replace(container, **_UNREAD_OF_CONTAINER) for container in spec.init_containers
        ),
        **_UNREAD,
    )
