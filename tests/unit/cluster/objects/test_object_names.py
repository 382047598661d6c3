"""Words of a command line that name objects of a cluster."""

import pytest

from nodewright.cluster.objects.object_names import KINDS, split_words
from nodewright.model.errors import InputError


@pytest.mark.parametrize(
    ("words", "names", "others"),
    [
        (("pod/web-0",), ["pod/web-0"], ()),
        (("po", "web-0", "web-1"), ["pod/web-0", "pod/web-1"], ()),
        (("deploy,sts",), ["deployments", "statefulsets"], ()),
        (("pods", "deploy/api"), ["pods", "deploy/api"], ()),
        (("deployments.apps/api",), ["deployments.apps/api"], ()),
        (("web.yaml", "node/worker-3"), ["node/worker-3"], ("web.yaml",)),
        (("pods", "web.yaml"), ["pods"], ("web.yaml",)),
        (("nothing/x", "pod/"), [], ("nothing/x", "pod/")),
    ],
)
def test_words_are_kubectls(words: tuple[str, ...], names: list[str], others: tuple[str, ...]) -> None:
    split = split_words(words, lambda word: word.endswith(".yaml"))
    assert ([name.word for name in split.names], split.others) == (names, others)


def test_a_file_of_that_name_is_a_file() -> None:
    assert split_words(("deploy/api",), lambda _word: True).names == ()


def test_names_that_no_object_has_are_errors() -> None:
    with pytest.raises(InputError, match="RFC 1123"):
        split_words(("pod/Web_0",), lambda _word: False)


def test_cluster_scoped_kinds_have_no_namespace_in_their_path() -> None:
    assert KINDS["no"].path("shop", "w") == "/api/v1/nodes/w"
    assert KINDS["po"].path("", "") == "/api/v1/pods"
