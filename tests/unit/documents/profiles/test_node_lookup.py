import pytest

from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.errors import InputError


def test_no_reference_means_this_machine() -> None:
    profile = find_profile(None)
    assert profile.spec.machine_info.num_cores > 0
    assert profile.spec.machine_info.memory_capacity > 0
    assert profile.spec.root_fs_capacity > 0


def test_a_reference_to_nothing_is_an_input_error() -> None:
    with pytest.raises(InputError, match="neither a file nor a name"):
        find_profile("no/such/profile.yaml")
