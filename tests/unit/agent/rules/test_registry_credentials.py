"""Registry credentials and their match with images."""

import pytest

from nodewright.agent.rules.image_policy import (
    RegistryLogin,
    logins_of_config,
    logins_of_secret,
    matching_logins,
)
from nodewright.model.kubernetes.cluster_objects import Secret

WHO = {"username": "ann", "password": "secret"}


def matching_registries(image: str, *places: str) -> list[str]:
    return [
        login.registry for login in matching_logins([RegistryLogin(place, "", "") for place in places], image)
    ]


@pytest.mark.parametrize(
    ("image", "places", "expected"),
    [
        ("reg.example/web", ("reg.example", "other.example"), ["reg.example"]),
        ("reg.example:5000/web", ("reg.example", "reg.example:5000"), ["reg.example:5000"]),
        ("reg.example/shop/web", ("reg.example", "reg.example/shop"), ["reg.example/shop", "reg.example"]),
        ("reg.example/web", ("reg.example/shop",), []),
        ("a.reg.example/web", ("*.reg.example", "*.example"), ["*.reg.example"]),
        ("docker.io/library/web", ("index.docker.io",), ["index.docker.io"]),
        ("docker.io/library/web", ("index.docker.io", "docker.io"), ["docker.io"]),
        ("reg.example/web", ("index.docker.io",), []),
    ],
)
def test_logins_match_the_registry_of_an_image(
    image: str, places: tuple[str, ...], expected: list[str]
) -> None:
    assert matching_registries(image, *places) == expected


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("https://index.docker.io/v1/", "index.docker.io"),
        ("http://reg.example/v2/shop", "reg.example/shop"),
        ("reg.example:5000/", "reg.example:5000"),
    ],
)
def test_registries_are_normalized(written: str, place: str) -> None:
    content = f'{{"auths": {{"{written}": {{"username": "ann", "password": "secret"}}}}}}'
    assert logins_of_config(content.encode()) == (RegistryLogin(place, "ann", "secret"),)


@pytest.mark.parametrize("auth", ["YW5uOnNlY3JldDo=", "YW5uOnNlY3JldDo"])
def test_both_may_be_in_one_text(auth: str) -> None:
    content = f'{{"reg.example": {{"auth": "{auth}"}}}}'.encode()
    assert logins_of_config(content, is_old=True) == (RegistryLogin("reg.example", "ann", "secret:"),)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"auths": []}', b'{"auths": {"a": {"auth": "c2VjcmV0"}}}']
)
def test_invalid_content_is_not_shown_in_the_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^error occurred while trying to unmarshal json$"):
        logins_of_config(content)


def test_secrets_of_two_types_have_logins() -> None:
    content = b'{"auths": {"reg.example": {"username": "ann", "password": "secret"}}}'
    new = Secret(type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": content})
    old = Secret(type="kubernetes.io/dockercfg", string_data={".dockercfg": '{"b.example": {}}'})
    assert logins_of_secret(new) == (RegistryLogin("reg.example", "ann", "secret"),)
    assert logins_of_secret(old) == (RegistryLogin("b.example", "", ""),)
    assert logins_of_secret(Secret(type="Opaque", data={".dockerconfigjson": content})) == ()
