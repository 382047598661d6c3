import pytest
from tests.unit.engine.admission.quota.objects import a_term, a_volume_claim, short

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.object_usage import VOLUME_CLAIM_EVALUATOR, storage_usage
from nodewright.model.kubernetes.api_request import APIRequest, Operation, create_request, update_request
from nodewright.model.kubernetes.cluster_objects import PersistentVolumeClaim, ScopeTerm

# asked for | set aside  ->  what is charged
STORAGE = """
    1Gi   |        ->  1Gi
    1Gi   | 2Gi    ->  2Gi
    2Gi   | 1Gi    ->  2Gi
    1500m |        ->  2
    1     | 1500m  ->  2
    1.5   | 2      ->  2
    0     |        ->  0
          | 2Gi    ->  None
"""


@pytest.mark.parametrize("line", STORAGE.strip("\n").splitlines())
def test_storage_is_what_was_asked_for_or_set_aside_in_whole_bytes(line: str) -> None:
    case, _, charged = line.partition("->")
    asked, aside = (part.strip() for part in case.split("|"))
    status = {"allocatedResources": {"storage": aside}} if aside else {}
    assert str(storage_usage(a_volume_claim(asked or None, status=status))) == charged.strip()


def test_a_claim_is_charged_to_its_storage_class_as_well() -> None:
    assert short(VOLUME_CLAIM_EVALUATOR.usage(a_volume_claim())) == (
        "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi"
    )
    gold = VOLUME_CLAIM_EVALUATOR.usage(a_volume_claim(storageClassName="gold"))
    assert short(gold) == (
        "count/persistentvolumeclaims=1 "
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 "
        "gold.storageclass.storage.k8s.io/requests.storage=1Gi "
        "persistentvolumeclaims=1 requests.storage=1Gi"
    )
    assert VOLUME_CLAIM_EVALUATOR.matching_resources(gold) == tuple(sorted(gold))
    assert short(VOLUME_CLAIM_EVALUATOR.usage(a_volume_claim(None, storageClassName="gold"))) == (
        "count/persistentvolumeclaims=1 "
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 persistentvolumeclaims=1"
    )


@pytest.mark.parametrize(("annotated", "counts"), [("old", "old"), ("", "")])
def test_the_old_annotation_names_the_class_before_the_field(annotated: str, counts: str) -> None:
    metadata = {"annotations": {"volume.beta.kubernetes.io/storage-class": annotated}}
    used = VOLUME_CLAIM_EVALUATOR.usage(a_volume_claim(None, metadata=metadata, storageClassName="gold"))
    of_class = [name for name in used if "storageclass" in name]
    assert of_class == ([f"{counts}.storageclass.storage.k8s.io/persistentvolumeclaims"] if counts else [])


def test_every_update_of_a_status_is_charged() -> None:
    claim = a_volume_claim()
    assert VOLUME_CLAIM_EVALUATOR.is_handled(create_request(claim))
    assert VOLUME_CLAIM_EVALUATOR.is_handled(update_request(claim, claim))
    assert VOLUME_CLAIM_EVALUATOR.is_handled(update_request(claim, claim, "status"))
    assert not VOLUME_CLAIM_EVALUATOR.is_handled(update_request(claim, claim, "scale"))
    unknown = APIRequest(operation=Operation.UPDATE, object=claim, subresource="status")
    assert not VOLUME_CLAIM_EVALUATOR.is_handled(unknown)


MOVING = a_volume_claim(
    volumeAttributesClassName="fast",
    status={
        "currentVolumeAttributesClassName": "slow",
        "modifyVolumeStatus": {"targetVolumeAttributesClassName": "faster"},
    },
)
IN_SCOPE: list[tuple[str, PersistentVolumeClaim, bool]] = [
    ("VolumeAttributesClass Exists", a_volume_claim(), False),
    ("VolumeAttributesClass Exists", MOVING, True),
    ("VolumeAttributesClass DoesNotExist", a_volume_claim(volumeAttributesClassName=""), True),
    ("VolumeAttributesClass DoesNotExist", MOVING, False),
    ("VolumeAttributesClass In slow", MOVING, True),
    ("VolumeAttributesClass In faster", MOVING, True),
    ("VolumeAttributesClass In other", MOVING, False),
    ("VolumeAttributesClass NotIn fast", MOVING, True),
    ("VolumeAttributesClass NotIn fast,slow,faster", MOVING, False),
    ("VolumeAttributesClass NotIn fast", a_volume_claim(), True),
    ("PriorityClass Exists", MOVING, False),
]


@pytest.mark.parametrize(("words", "claim", "is_in"), IN_SCOPE)
def test_a_claim_is_in_a_scope_by_any_of_its_classes(
    words: str, claim: PersistentVolumeClaim, is_in: bool
) -> None:
    assert VOLUME_CLAIM_EVALUATOR.is_in_scope(decode(a_term(words), ScopeTerm), claim) is is_in
