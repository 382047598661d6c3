"""`dra_manager_state`, written and read."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.documents.profiles.state_files.claim_checkpoint import (
    ClaimFileError,
    claim_state_file,
    read_claim_state,
)
from nodewright.engine.core.claims.prepared_claims import PreparedClaim, PreparedClaims, PreparedDevice

NAMES = st.text(max_size=4)
TEXTS = st.none() | st.lists(NAMES, max_size=2).map(tuple)
DEVICES = st.builds(
    PreparedDevice,
    pool=NAMES,
    device=NAMES,
    share_id=st.none() | NAMES,
    requests=TEXTS,
    cdi_devices=TEXTS,
)
CLAIMS = st.builds(
    PreparedClaim,
    uid=NAMES,
    name=NAMES,
    namespace=NAMES,
    pods=st.frozensets(NAMES, max_size=2),
    drivers=st.dictionaries(NAMES, st.none() | st.lists(DEVICES, max_size=2).map(tuple), max_size=2),
    is_prepared=st.booleans(),
)


@given(st.lists(CLAIMS, max_size=3))
def test_what_is_written_is_read_and_counts_as_unprepared(claims: list[PreparedClaim]) -> None:
    cache = PreparedClaims({claim.key: claim for claim in claims})
    content = claim_state_file(cache)
    read = read_claim_state(content)
    assert read == cache.restarted()
    assert claim_state_file(read) == content


def test_a_fresh_file_has_no_list() -> None:
    content = claim_state_file(None)
    assert b'\\"ClaimInfoStateList\\":null' in content
    assert read_claim_state(content) == PreparedClaims()
    assert claim_state_file(PreparedClaims()) != content


@given(st.lists(CLAIMS, min_size=1, max_size=2), st.data())
def test_a_damaged_file_is_refused_or_read(claims: list[PreparedClaim], data: Any) -> None:
    content = bytearray(claim_state_file(PreparedClaims({claim.key: claim for claim in claims})))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ClaimFileError):
        assert isinstance(read_claim_state(bytes(content)), PreparedClaims)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"Data":"{}","Checksum":1}', "checkpoint is corrupted"),
        (b'{"Checksum":-1}', "json: cannot unmarshal number -1 into Go struct field Checkpoint.Checksum of type uint32"),
    ],
)  # fmt: skip
def test_the_errors_are_the_kubelets(content: bytes, text: str) -> None:
    with pytest.raises(ClaimFileError, match=text):
        read_claim_state(content)
