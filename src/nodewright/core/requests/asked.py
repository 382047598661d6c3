"""The whole answer to "what does this pod ask for?"."""

from dataclasses import dataclass

from nodewright.core.requests.defaults import Default, defaulted
from nodewright.core.requests.derivation import Derivation, derivations
from nodewright.core.requests.effective import (
    AS_IT_IS,
    WITH_STATUS,
    RequestOptions,
    Side,
    own_lists,
    pod_level,
)
from nodewright.core.requests.oom import OOMScore, oom_scores
from nodewright.core.requests.qos import QOSVerdict, qos_verdict
from nodewright.model.objects import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a pod asks for, with what decided each part.

    Units: memory_capacity in bytes.
    """

    pod: Pod
    """The pod as the API server stores it."""
    defaults: tuple[Default, ...]
    requests: tuple[Derivation, ...]
    limits: tuple[Derivation, ...]
    resized: tuple[str, ...]
    """Containers (empty: the pod level) that count otherwise than their spec says, because of their status."""
    qos: QOSVerdict
    memory_capacity: int
    """The memory of the node that the scores are for."""
    scores: tuple[OOMScore, ...]


def asked(pod: Pod, memory_capacity: int, options: RequestOptions = WITH_STATUS) -> Asked:
    """What the pod asks for once the API server has filled in its defaults.

    Units: memory_capacity in bytes, at least 1.
    """
    stored = defaulted(pod)
    return Asked(
        pod=stored.pod,
        defaults=stored.applied,
        requests=derivations(stored.pod, Side.REQUESTS, options),
        limits=derivations(stored.pod, Side.LIMITS, options),
        resized=_resized(stored.pod, options),
        qos=qos_verdict(stored.pod),
        memory_capacity=memory_capacity,
        scores=oom_scores(stored.pod, memory_capacity),
    )


def _resized(pod: Pod, options: RequestOptions) -> tuple[str, ...]:
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    found = []
    for side in Side:
        counted, written = own_lists(pod, side, options), own_lists(pod, side, AS_IT_IS)
        for name, now, was in zip(
            names,
            (*counted.containers, *counted.init_containers),
            (*written.containers, *written.init_containers),
            strict=True,
        ):
            found += [name] if now != was else []
        found += [""] if pod_level(pod, side, options) != pod_level(pod, side, AS_IT_IS) else []
    return tuple(dict.fromkeys(found))
