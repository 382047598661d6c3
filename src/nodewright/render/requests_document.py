"""What pods ask for, as a document: the same content in JSON and YAML."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.core.requests import Addend, Asked, Derivation, Role
from nodewright.model.objects import Container, ResourceRequirements
from nodewright.model.profile import API_VERSION
from nodewright.model.release import RULED
from nodewright.render.documents import fact_document
from nodewright.render.request_sentences import qos_sentence, score_sentence
from nodewright.render.requests import Entry


def requests_document(
    entries: Sequence[Entry],
    memory_of: str,
    memory_capacity: int,
    *,
    skipped: Mapping[str, int],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """All that is known about what the pods ask for.

    Units: memory_capacity in bytes.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "RequestsReport",
        "rulesOf": RULED[-1],
        "memoryCapacity": memory_capacity,
        "memoryCapacityOf": memory_of,
        "items": [_item(entry) for entry in entries],
        "skipped": dict(skipped),
        "warnings": list(warnings),
    }


def _item(entry: Entry) -> dict[str, Any]:
    asked = entry.asked
    return {
        "kind": entry.kind,
        "name": entry.name,
        "namespace": entry.namespace,
        "source": entry.source,
        "replicas": entry.replicas,
        "requests": {each.resource: each.amount for each in asked.requests},
        "limits": {each.resource: each.amount for each in asked.limits},
        "derivation": {
            "requests": [_derivation(each) for each in asked.requests],
            "limits": [_derivation(each) for each in asked.limits],
        },
        "resized": asked.resized,
        "defaults": [fact_document(fact) for fact in asked.defaults],
        "qosClass": asked.qos.qos_class.value,
        "qosBecause": [{**fact_document(fact), "sentence": qos_sentence(fact)} for fact in asked.qos.because],
        "containers": list(_containers(asked)),
    }


def _derivation(derivation: Derivation) -> dict[str, Any]:
    document: dict[str, Any] = {
        "resource": derivation.resource,
        "amount": derivation.amount,
        "moments": [
            {
                "during": moment.during or None,
                "amount": moment.amount,
                "addends": [_addend(addend) for addend in moment.addends],
                "decides": index == derivation.greatest,
            }
            for index, moment in enumerate(derivation.moments)
        ],
    }
    if derivation.claims:
        document["claims"] = [_addend(addend) for addend in derivation.claims]
    if derivation.pod_level is not None:
        document["podLevel"] = derivation.pod_level
    if derivation.overhead is not None:
        document["overhead"] = derivation.overhead
    document["silent"] = [addend.name for addend in derivation.silent]
    return document


def _addend(addend: Addend) -> dict[str, Any]:
    role = {"role": addend.role.value} if addend.role else {}
    return {"name": addend.name, **role, "amount": addend.amount}


def _containers(asked: Asked) -> list[dict[str, Any]]:
    spec = asked.pod.spec
    everyone = (
        *((container, Role.CONTAINER) for container in spec.containers),
        *(
            (container, Role.SIDECAR if container.is_sidecar else Role.INIT)
            for container in spec.init_containers
        ),
    )
    return [
        {
            **_container(container, role),
            "oomScoreAdj": score.adj,
            "oomScoreBecause": {**fact_document(score.because), "sentence": score_sentence(score)},
        }
        for (container, role), score in zip(everyone, asked.scores, strict=True)
    ]


def _container(container: Container, role: Role) -> dict[str, Any]:
    return {"name": container.name, "role": role.value, **_resources(container.resources)}


def _resources(resources: ResourceRequirements) -> dict[str, Any]:
    return {"requests": resources.requests, "limits": resources.limits}
