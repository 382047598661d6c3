import pytest

from nodewright.errors import InputError
from nodewright.hardware.machine_faults import machine_faults
from nodewright.profiles.catalogue import REAL_MACHINES, catalogue, recorded_machines
from nodewright.profiles.node_lookup import find_profile

SIZES = """
    vm-4                   cpus 4     cores 2     sockets 1   numa 1    l3 0
    laptop-i7-1370p        cpus 20    cores 14    sockets 1   numa 1    l3 1
    xeon-8380-2s           cpus 160   cores 80    sockets 2   numa 2    l3 0
    xeon-8380-2s-snc2      cpus 160   cores 80    sockets 2   numa 4    l3 2
    xeon-8480-2s           cpus 224   cores 112   sockets 2   numa 2    l3 0
    xeon-8480-2s-snc2      cpus 224   cores 112   sockets 2   numa 4    l3 2
    xeon-8480-2s-snc4      cpus 224   cores 112   sockets 2   numa 8    l3 2
    epyc-7742-2s-nps1      cpus 256   cores 128   sockets 2   numa 2    l3 32
    epyc-7742-2s-nps4      cpus 256   cores 128   sockets 2   numa 8    l3 32
    epyc-7742-2s-l3numa    cpus 256   cores 128   sockets 2   numa 32   l3 0
    epyc-9654-2s-nps1      cpus 384   cores 192   sockets 2   numa 2    l3 24
    epyc-9654-2s-nps4      cpus 384   cores 192   sockets 2   numa 8    l3 24
    kunpeng-920-2s         cpus 128   cores 128   sockets 2   numa 4    l3 0
    gb200                  cpus 144   cores 144   sockets 2   numa 34   l3 0
"""


@pytest.mark.parametrize("line", SIZES.strip().splitlines())
def test_a_real_shape_has_the_published_numbers_and_the_uncore_caches_that_cadvisor_finds(line: str) -> None:
    name, _, cpus, _, cores, _, sockets, _, numa, _, l3 = line.split()
    machine = catalogue()[name].machine
    listed = [core for node in machine.topology for core in node.cores]
    assert (machine.num_cores, len(listed)) == (int(cpus), int(cores))
    assert (machine.num_sockets, len(machine.topology)) == (int(sockets), int(numa))
    assert len({cache.id for core in listed for cache in core.uncore_caches}) == int(l3)


def test_the_table_above_is_complete() -> None:
    assert [line.split()[0] for line in SIZES.strip().splitlines()] == list(REAL_MACHINES)


def test_nothing_in_the_catalogue_contradicts_itself() -> None:
    wrong = {name: machine_faults(entry.machine) for name, entry in catalogue().items()}
    assert [name for name, faults in wrong.items() if any(not fault.tolerated for fault in faults)] == []
    assert [name for name, faults in wrong.items() if faults] == ["odd-numa-ids-0-8"]


def test_every_recorded_machine_is_there() -> None:
    recorded = [name for name, entry in catalogue().items() if entry.is_recorded]
    assert recorded == list(recorded_machines())
    assert len(recorded) == 44


@pytest.mark.parametrize("reference", ["gb200", "catalogue:gb200"])
def test_a_shape_is_a_node_with_the_kubelets_default_configuration(reference: str) -> None:
    profile = find_profile(reference)
    assert profile.metadata.name == "gb200"
    assert profile.spec.kubelet_configuration == {}
    assert profile.spec.labels["kubernetes.io/arch"] == "arm64"


def test_a_misspelled_name_is_an_error_with_similar_names() -> None:
    with pytest.raises(InputError, match="similar names: epyc-7742-2s-nps1"):
        find_profile("epyc-7742-nps1")
