""""""

import os
from pathlib import Path

import pytest

from nodewright.documents.profiles.kubelet_config_files import read_written_config
from nodewright.documents.profiles.machine import host_facts
from nodewright.documents.profiles.machine.captured_machine import capture_this_machine
from nodewright.documents.profiles.machine.host_facts import (
    HostTree,
    MachineFact,
    MissingFact,
    cgroup_version,
    copied_machine,
    missing_fact_sentence,
)
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.node_profile import ImageFS


def test_a_file_that_the_system_refuses_is_a_world_error() -> None:
    with pytest.raises(HostError, match="read /proc/self/mem"):
        HostTree(Path("/proc")).text("self/mem")


def test_names_of_what_is_no_directory_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tree = HostTree(tmp_path, confined=True)
    assert tree.names("file") == tree.names("none") == tree.names("..") == ()
    assert tree.text("file/below") is None


def test_this_machine_agrees_with_what_python_knows_of_it() -> None:
    spec = capture_this_machine().profile.spec
    assert spec.machine_info.num_cores >= len(os.sched_getaffinity(0))
    assert spec.page_size_bytes == os.sysconf("SC_PAGE_SIZE")
    assert spec.labels["kubernetes.io/os"] == "linux"


def test_the_kubelets_file_system_is_that_of_the_nearest_directory_there_is(tmp_path: Path) -> None:
    room = os.statvfs(tmp_path)
    result = host_facts.this_host(tmp_path / "not" / "yet")
    assert result.root_fs_capacity == room.f_frsize * room.f_blocks


def test_images_on_another_file_system_are_told_apart(tmp_path: Path) -> None:
    # /proc is a file system of its own wherever tests run.
    result = host_facts.this_host(tmp_path, (tmp_path / "none", tmp_path, Path("/proc")))
    assert result.image_fs == ImageFS()
    assert host_facts.this_host(tmp_path, (tmp_path,)).image_fs is None


def test_directories_that_may_not_be_looked_at_count_as_missing(tmp_path: Path) -> None:
    unspeakable = tmp_path / ("x" * 5000)
    result = host_facts.this_host(unspeakable, (unspeakable,))
    assert (result.root_fs_capacity > 0, result.image_fs) == (True, None)


def test_processors_are_named_as_kubernetes_names_them() -> None:
    assert [host_facts.kubernetes_architecture(name) for name in ("x86_64", "aarch64", "riscv64")] == [
        "amd64",
        "arm64",
        "riscv64",
    ]


@pytest.mark.parametrize("text", ["", "[]", "a: 1", "apiVersion: v1\nkind: KubeletConfiguration"])
def test_another_document_is_no_configuration(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match="failed to decode"):
        read_written_config(file)


def test_a_configuration_is_kept_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file.write_text(f"{head}maxPods: 20\nmaxPod: 3\n---\nanother: document\n")
    assert read_written_config(file)[:2] == ({"maxPods": 20, "maxPod": 3}, ("maxPod",))
    file.write_text(f"{head}maxPods: many\n")
    with pytest.raises(InputError, match="maxPods"):
        read_written_config(file)


def test_a_configuration_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_written_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("fact", list(MachineFact))
def test_every_missing_fact_has_a_one_line_sentence(fact: MachineFact) -> None:
    for lack in (
        MissingFact(fact=fact, place="PLACE"),
        MissingFact(fact=fact, place="PLACE", substitute="INSTEAD"),
    ):
        sentence = missing_fact_sentence(lack)
        assert sentence == sentence.strip()
        assert "\n" not in sentence


def test_a_missing_file_is_reported_with_the_substitute() -> None:
    lack = MissingFact(fact=MachineFact.SWAP, place="/proc/meminfo", substitute="0")
    assert missing_fact_sentence(lack) == "swap: not known (/proc/meminfo is missing), 0 in the profile"


def test_an_empty_cgroup_tree_is_not_called_missing(tmp_path: Path) -> None:
    for directory in ("sys/fs/cgroup", "sys/devices/system"):
        (tmp_path / directory).mkdir(parents=True)
    sources = copied_machine(tmp_path)
    assert cgroup_version(sources) == 2
    (lack,) = sources.missing
    place = tmp_path / "sys/fs/cgroup"
    assert missing_fact_sentence(lack) == (
        f"cgroup version: not known ({place} is empty or missing), 2 in the profile"
    )
