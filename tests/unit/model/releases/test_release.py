import pytest

from nodewright.model.releases.release_table import Release, ReleaseError, applied_rules

READ = """
    v1.36.2                 1.36  rules 1.36
    1.36                    1.36  rules 1.36
    v1.36.0-rc.1            1.36  rules 1.36
    v1.35.4+k3s1            1.35  rules 1.35
    1.29.3-gke.1282000      1.29  rules 1.32
    v1.31.9                 1.31  rules 1.32
    v1.37.0-eks-a1b2c3d     1.37  rules 1.37
    v1.38.0-alpha.1         1.38  rules 1.37
    v2.0                    2.0   rules 1.37
"""


@pytest.mark.parametrize("line", READ.strip().splitlines())
def test_a_release_is_parsed_and_its_rules_are_named(line: str) -> None:
    text, minor, _, rules = line.split()
    release = Release.parse(text)
    assert release.text == text
    assert release.minor_release == minor
    rules_applied = applied_rules(release)
    assert rules_applied.rules_of == rules
    assert rules_applied.are_of_other_release == (minor != rules)


@pytest.mark.parametrize(
    "text", ["", "1", "v1.", "latest", "1.36.x", "1.36 .2", "1.3٦", "v1.36.2\nx", "9" * 50]
)
def test_other_texts_are_not_releases(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"is not a Kubernetes release such as v1\.36\.2"):
        Release.parse(text)
