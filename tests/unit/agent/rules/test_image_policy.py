"""Image names, pull errors and image garbage collection."""

import pytest

from nodewright.agent.rules.image_policy import (
    ImageGCPolicy,
    ImageName,
    ImageRecord,
    InvalidImageName,
    image_gc_plan,
    image_never_pull,
    image_pull_back_off,
    image_pull_failure,
    image_with_tag,
    invalid_image_name,
    parse_image_name,
    pull_policy,
    unused_images,
    updated_image_records,
)

HEX = "0123456789abcdef" * 4
NAMES = f"""
    web                          -> docker.io/library/web          latest  -
    web:1                        -> docker.io/library/web          1       -
    shop/web                     -> docker.io/shop/web             latest  -
    index.docker.io/web          -> docker.io/library/web          latest  -
    localhost/web:1.2_3-x        -> localhost/web                  1.2_3-x -
    localhost:5000/a/b/c         -> localhost:5000/a/b/c           latest  -
    quay.io/a__b/c-d.e:V1        -> quay.io/a__b/c-d.e             V1      -
    [fe80::1]:5000/web           -> [fe80::1]:5000/web             latest  -
    UPPER/web                    -> UPPER/web                      latest  -
    web@sha256:{HEX}             -> docker.io/library/web          -       sha256:{HEX}
    web:1@sha256:{HEX}           -> docker.io/library/web          1       sha256:{HEX}
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_image_names_are_parsed_with_defaults(line: str) -> None:
    text, _, name, tag, digest = line.split()
    expected = ImageName(name=name, tag=tag.strip("-"), digest=digest.strip("-"))
    assert parse_image_name(text) == expected


FORMAT = "invalid reference format"
NO_NAMES = [
    ("", FORMAT),
    (":1", FORMAT),
    ("web:", FORMAT),
    ("web:-1", FORMAT),
    ("a//b", FORMAT),
    ("-a.com/web", FORMAT),
    ("web@sha256:12", FORMAT),
    ("we b", FORMAT),
    ("wéb", FORMAT),
    ("Web:V1", f"{FORMAT}: repository name (library/Web) must be lowercase"),
    ("quay.io/Shop/web", f"{FORMAT}: repository name (Shop/web) must be lowercase"),
    (HEX, f"invalid repository name ({HEX}), cannot specify 64-byte hexadecimal strings"),
    ("a.io/" + 251 * "b", "repository name must not be more than 255 characters"),
]


@pytest.mark.parametrize(("text", "why"), NO_NAMES)
def test_invalid_image_names_are_refused(text: str, why: str) -> None:
    image_name = parse_image_name(text)
    assert image_name == InvalidImageName(f'couldn\'t parse image name "{text}": {why}')
    refusal = invalid_image_name(text, InvalidImageName("no"))
    assert (refusal.reason, refusal.message) == (
        "InvalidImageName",
        f'Failed to apply default image tag "{text}": no',
    )


WANTED = f"""
    web            -> web:latest            Always
    web:latest     -> web:latest            Always
    web:1          -> web:1                 IfNotPresent
    web@sha256:{HEX} -> web@sha256:{HEX}    IfNotPresent
"""


@pytest.mark.parametrize("line", WANTED.strip().splitlines())
def test_the_pull_policy_has_the_kubelets_defaults(line: str) -> None:
    text, _, wanted, policy = line.split()
    name = parse_image_name(text)
    assert isinstance(name, ImageName)
    assert (image_with_tag(text, name), pull_policy("", name)) == (wanted, policy)
    assert pull_policy("Never", name) == "Never"


def test_refusals_have_the_kubelets_texts() -> None:
    assert image_never_pull("web").message == 'Container image "web" is not present with pull policy of Never'
    assert image_pull_back_off("web", "").message == 'Back-off pulling image "web"'
    assert (
        image_pull_back_off("web", "ErrImagePull: no").message
        == 'Back-off pulling image "web": ErrImagePull: no'
    )
    assert image_pull_failure("web", "no").reason == "ErrImagePull"
    away = image_pull_failure("web", "RegistryUnavailable: try later")
    assert away.reason == "RegistryUnavailable"
    assert away.message == "image pull failed for web because the registry is unavailable: try later"


# ---------------------------------------------------------------- what goes

MINUTE = 60 * 10**9
NOW = 1000 * MINUTE
MIB = 1 << 20


def record(id_: str, *, seen: int = 0, used: int = 0, pinned: bool = False, mib: int = 10) -> ImageRecord:
    return ImageRecord(
        id=id_,
        size_bytes=mib * MIB,
        is_pinned=pinned,
        first_seen_ns=NOW - seen * MINUTE,
        last_used_ns=NOW - used * MINUTE if used else 0,
    )


def by_id(*records: ImageRecord) -> dict[str, ImageRecord]:
    return {record.id: record for record in records}


def test_image_records_follow_detection_use_and_removal() -> None:
    first = updated_image_records({}, [("a", 1, False), ("b", 2, True)], frozenset("a"), 5)
    assert [(image_record.first_seen_ns, image_record.last_used_ns) for image_record in first.values()] == [
        (5, 5),
        (5, 0),
    ]
    second = updated_image_records(first, [("a", 1, False), ("c", 3, False)], frozenset("c"), 9)
    assert [
        (image_record.id, image_record.first_seen_ns, image_record.last_used_ns)
        for image_record in second.values()
    ] == [
        ("a", 5, 5),
        ("c", 9, 9),
    ]


ROOM = """
    used 84  of 100  ->  84  0
    used 85  of 100  ->  85  5
    used 95  of 100  ->  95  15
    used 100 of 100  ->  100 20
    used 0   of 0    ->  0   0
    used -10 of 100  ->  0   0
"""


@pytest.mark.parametrize("line", ROOM.strip().splitlines())
def test_from_the_high_threshold_space_is_freed_down_to_the_low_one(line: str) -> None:
    _, used, _, capacity, _, percent, wanted = line.split()
    room = (int(capacity) * MIB, (int(capacity) - int(used)) * MIB)
    result = image_gc_plan(by_id(record("a", seen=9)), frozenset(), room, ImageGCPolicy(), (NOW, 0))
    assert (result.used_percent, result.bytes_to_free) == (int(percent), int(wanted) * MIB)
    assert [candidate.id for candidate in result.candidates] == (["a"] if int(wanted) else [])


def test_least_recently_used_images_are_removed_first_and_some_never() -> None:
    known = by_id(
        record("new", seen=1),
        record("never", seen=3),
        record("older", seen=8, used=7),
        record("later", seen=9, used=5),
        record("same", seen=5, used=7),
        record("used", seen=9, used=9),
        record("pinned", seen=9, pinned=True),
    )
    result = image_gc_plan(known, frozenset({"used"}), (100 * MIB, 0), ImageGCPolicy(), (NOW, 0))
    assert [candidate.id for candidate in result.candidates] == ["never", "older", "same", "later"]
    assert [image.id for image in unused_images(known, frozenset({"used"}), ImageGCPolicy(), NOW)] == [
        "never",
        "older",
        "same",
        "later",
    ]


def test_outdated_images_are_removed_even_with_free_space() -> None:
    policy = ImageGCPolicy(max_age_ns=60 * MINUTE)
    known = by_id(record("old", seen=99, used=61), record("young", seen=99, used=60), record("never", seen=1))
    room = (100 * MIB, 90 * MIB)
    result = image_gc_plan(known, frozenset(), room, policy, (NOW, NOW - 61 * MINUTE))
    assert [image_record.id for image_record in result.outdated] == ["never", "old"]
    assert not result.candidates
    too_early = image_gc_plan(known, frozenset(), room, policy, (NOW, NOW - 60 * MINUTE))
    assert not too_early.outdated


def test_outdated_images_are_not_removed_twice() -> None:
    policy = ImageGCPolicy(max_age_ns=60 * MINUTE)
    known = by_id(record("old", seen=99, used=61), record("young", seen=99, used=2))
    result = image_gc_plan(known, frozenset(), (100 * MIB, 0), policy, (NOW, 0))
    assert (
        [image_record.id for image_record in result.outdated],
        [candidate.id for candidate in result.candidates],
    ) == (
        ["old"],
        ["young"],
    )
