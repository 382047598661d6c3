import pytest

from nodewright.documents.profiles.catalogue import (
    catalogue,
    catalogue_machine,
    real_machines,
    recorded_machines,
)
from nodewright.documents.profiles.node_profiles import find_profile, profile_faults, profile_from_bytes
from nodewright.documents.profiles.profile_yaml import profile_document, profile_yaml
from nodewright.model.errors import InputError
from nodewright.model.hardware import machine_faults

SIZES = """
    vm-4                     cpus 4     cores 2     sockets 1   numa 1    l3 0
    laptop-i7-1370p          cpus 20    cores 14    sockets 1   numa 1    l3 1
    xeon-8380-2s             cpus 160   cores 80    sockets 2   numa 2    l3 0
    xeon-8380-2s-snc2        cpus 160   cores 80    sockets 2   numa 4    l3 2
    xeon-8480-2s             cpus 224   cores 112   sockets 2   numa 2    l3 0
    xeon-8480-2s-snc2        cpus 224   cores 112   sockets 2   numa 4    l3 2
    xeon-8480-2s-snc4        cpus 224   cores 112   sockets 2   numa 8    l3 2
    xeon-8592-2s             cpus 256   cores 128   sockets 2   numa 2    l3 0
    xeon-8592-2s-snc2        cpus 256   cores 128   sockets 2   numa 4    l3 2
    xeon-6972p-2s            cpus 384   cores 192   sockets 2   numa 2    l3 0
    xeon-6972p-2s-snc3       cpus 384   cores 192   sockets 2   numa 6    l3 2
    xeon-6980p-2s            cpus 512   cores 256   sockets 2   numa 2    l3 0
    epyc-7742-2s-nps1        cpus 256   cores 128   sockets 2   numa 2    l3 32
    epyc-7742-2s-nps4        cpus 256   cores 128   sockets 2   numa 8    l3 32
    epyc-7742-2s-l3numa      cpus 256   cores 128   sockets 2   numa 32   l3 0
    epyc-9654-2s-nps1        cpus 384   cores 192   sockets 2   numa 2    l3 24
    epyc-9654-2s-nps2        cpus 384   cores 192   sockets 2   numa 4    l3 24
    epyc-9654-2s-nps4        cpus 384   cores 192   sockets 2   numa 8    l3 24
    epyc-9755-2s-nps1        cpus 512   cores 256   sockets 2   numa 2    l3 32
    epyc-9755-2s-nps2        cpus 512   cores 256   sockets 2   numa 4    l3 32
    epyc-9755-2s-nps4        cpus 512   cores 256   sockets 2   numa 8    l3 32
    epyc-9965-2s-nps1        cpus 768   cores 384   sockets 2   numa 2    l3 24
    epyc-9965-2s-nps4        cpus 768   cores 384   sockets 2   numa 8    l3 24
    kunpeng-920-2s           cpus 128   cores 128   sockets 2   numa 4    l3 0
    dgx-a100                 cpus 256   cores 128   sockets 2   numa 8    l3 32
    dgx-h100                 cpus 224   cores 112   sockets 2   numa 2    l3 0
    dgx-h200                 cpus 224   cores 112   sockets 2   numa 2    l3 0
    dgx-b200                 cpus 224   cores 112   sockets 2   numa 2    l3 0
    hgx-b200-epyc            cpus 256   cores 128   sockets 2   numa 2    l3 16
    gh200                    cpus 72    cores 72    sockets 1   numa 9    l3 0
    gb200                    cpus 144   cores 144   sockets 2   numa 34   l3 0
    m5.large                 cpus 2     cores 1     sockets 1   numa 1    l3 0
    m5.xlarge                cpus 4     cores 2     sockets 1   numa 1    l3 0
    m5.metal                 cpus 96    cores 48    sockets 2   numa 2    l3 0
    m6idn.32xlarge           cpus 128   cores 64    sockets 2   numa 2    l3 0
    c6g.large                cpus 2     cores 2     sockets 1   numa 1    l3 0
    t3.large                 cpus 2     cores 1     sockets 1   numa 1    l3 0
    t4g.xlarge               cpus 4     cores 4     sockets 1   numa 1    l3 0
    g4dn.8xlarge             cpus 32    cores 16    sockets 1   numa 1    l3 0
    g4ad.16xlarge            cpus 64    cores 32    sockets 1   numa 1    l3 0
    p3.8xlarge               cpus 32    cores 16    sockets 1   numa 1    l3 0
    p4d.24xlarge             cpus 96    cores 48    sockets 2   numa 2    l3 0
    p5.48xlarge              cpus 192   cores 96    sockets 2   numa 2    l3 0
    p5e.48xlarge             cpus 192   cores 96    sockets 2   numa 2    l3 0
    p5en.48xlarge            cpus 192   cores 96    sockets 2   numa 2    l3 0
    inf2.24xlarge            cpus 96    cores 48    sockets 1   numa 1    l3 0
    trn1.2xlarge             cpus 8     cores 4     sockets 1   numa 1    l3 0
    dl1.24xlarge             cpus 96    cores 48    sockets 2   numa 2    l3 0
    Standard_D8s_v3          cpus 8     cores 4     sockets 1   numa 1    l3 0
    Standard_D64_v3          cpus 64    cores 32    sockets 2   numa 2    l3 0
    Standard_E64s_v3         cpus 64    cores 32    sockets 2   numa 2    l3 0
    Standard_NC24s_v3        cpus 24    cores 24    sockets 1   numa 1    l3 0
    Standard_NC96ads_A100_v4 cpus 96    cores 96    sockets 1   numa 4    l3 0
    Standard_ND96asr_v4      cpus 96    cores 96    sockets 2   numa 4    l3 0
    Standard_ND96isr_H100_v5 cpus 96    cores 96    sockets 2   numa 2    l3 0
    e2-standard-4            cpus 4     cores 2     sockets 1   numa 1    l3 0
    n2-standard-8            cpus 8     cores 4     sockets 1   numa 1    l3 0
    n2-standard-32           cpus 32    cores 16    sockets 1   numa 1    l3 0
    a2-highgpu-8g            cpus 96    cores 48    sockets 2   numa 2    l3 0
    a3-highgpu-8g            cpus 208   cores 104   sockets 2   numa 2    l3 0
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
    assert [line.split()[0] for line in SIZES.strip().splitlines()] == list(real_machines())


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


def test_every_entry_names_its_sources_or_what_has_none() -> None:
    entries = real_machines().values()
    assert [entry.description for entry in entries if not entry.sources and not entry.assumed] == []
    assert all("https://" in source for entry in entries for source in entry.sources)


def test_a_machine_with_gpus_is_a_node_whose_profile_reads_back_with_them() -> None:
    profile = find_profile("Standard_ND96asr_v4")
    assert profile.metadata.name == "standard-nd96asr-v4"
    assert [device.numa_nodes for device in profile.spec.devices["nvidia.com/gpu"]][:4] == [
        (1,),
        (1,),
        (0,),
        (0,),
    ]
    assert profile.spec.labels["node.kubernetes.io/instance-type"] == "Standard_ND96asr_v4"
    text = profile_yaml(profile_document(profile))
    assert profile_from_bytes(text.encode(), "profile.yaml") == profile
    assert profile.metadata.annotations["nodewright.dev/assumed"].startswith("memory, sockets")


def test_devices_whose_numa_nodes_are_not_known_have_no_topology() -> None:
    devices = find_profile("a3-highgpu-8g").spec.devices["nvidia.com/gpu"]
    assert [device.numa_nodes for device in devices] == [None] * 8


@pytest.mark.parametrize("name", [name for name in real_machines() if real_machines()[name].devices])
def test_every_machine_with_devices_is_a_valid_profile(name: str) -> None:
    assert list(profile_faults(find_profile(name))) == []


def test_a_misspelled_name_is_an_error_with_similar_names() -> None:
    with pytest.raises(InputError, match="similar names: epyc-7742-2s-nps1"):
        find_profile("epyc-7742-nps1")


@pytest.mark.parametrize("name", [*catalogue(), "nope", "m5", "", "dgx-a100.devices", '"m5.large"', ".*"])
def test_a_machine_that_is_looked_up_alone_is_that_of_the_catalogue(name: str) -> None:
    assert catalogue_machine(name) == catalogue().get(name)
