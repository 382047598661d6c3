"""The node that a command is asked about: this machine, a profile, or a shape of the catalogue."""

from pathlib import Path

import msgspec
import yaml

from nodewright.model.profile import NodeProfile
from nodewright.world.decode import decode
from nodewright.world.errors import Fault, InputError
from nodewright.world.machine.capture import capture_here


def find_profile(reference: str | None) -> NodeProfile:
    """The node meant: None, this machine with the kubelet's default configuration; a path, the profile there.

    Errors: InputError where there is no such file or it is no profile.
    """
    if reference is None:
        return capture_here().profile
    path = Path(reference)
    if not path.is_file():
        raise InputError(
            [Fault(source="--node", value=reference, rule="is neither a file nor a catalogue name")]
        )
    try:
        return decode(yaml.safe_load(path.read_bytes()), NodeProfile)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise InputError([Fault(source=reference, rule=str(error))]) from error
