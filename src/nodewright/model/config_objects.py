"""Objects that pods take variables and files from."""

import msgspec

from nodewright.model.objects import ObjectMeta


class ConfigMap(msgspec.Struct, frozen=True, rename="camel"):
    """Texts and bytes for pods, by key."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """The same, to be handled with care. `string_data` is what people write instead of base64."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = {}
    string_data: dict[str, str] = {}

    @property
    def content(self) -> dict[str, bytes]:
        """All of it, as the API server would keep it."""
        return {**self.data, **{key: value.encode() for key, value in self.string_data.items()}}
