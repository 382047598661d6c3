"""The kubelet's configuration in the forms in which distributions write it: one table from form to KubeletConfiguration."""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.documents import InputFile, decode_text, parse_documents
from nodewright.documents.formats.json_documents import merge_patch
from nodewright.documents.profiles.kubelet_flags import (
    FLAG_KINDS,
    FLAG_PATHS,
    FlagKind,
    overridden,
    override,
    parsed_value,
    written_flags,
)
from nodewright.documents.profiles.performance_profile import rendered_kubelet_config
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.kubelet_configuration import GROUP_VERSION, KIND, KubeletConfiguration


class KubeletForm(msgspec.Struct, frozen=True, kw_only=True):
    """A form, by the API group and kinds of its documents, or by its fields if it has none."""

    name: str
    group: str = ""
    kinds: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Where the fields of the configuration stand; `[]` is every item of a list, an empty path the document itself."""
    flags: tuple[str, ...] = ()
    """Where flags of the kubelet stand: a list of texts, a map, or a list of names and values."""
    texts: tuple[str, ...] = ()
    """Where documents for kubeadm stand as texts."""
    known_names: tuple[str, ...] = ()
    """All names that a document of a form without paths may have."""
    telling_names: tuple[str, ...] = ()
    """Those that no other form has; a file that ends in `.json` needs none."""
    has_own_names: bool = False
    """Whether names and notation are its own; else they are those of KubeletConfiguration."""
    adds: Mapping[str, Any] = {}
    """What the distribution sets below the fields that are written."""
    merges_maps: bool = False
    """Whether a map that is written is merged into the added one; else it replaces it."""
    is_layered: bool = False
    """Whether the other places are merged over the first."""
    forbids: tuple[str, ...] = ()
    """Fields that the distribution refuses."""
    not_judged: str = ""
    renders: bool = False
    """Whether an operator renders the configuration of the document, which has no fields of it."""


class _Table(msgspec.Struct, frozen=True):
    """The content of `data/kubelet_forms.toml`."""

    forms: tuple[KubeletForm, ...]
    names: Mapping[str, str]
    units: Mapping[str, tuple[str, str]]


_TABLE = msgspec.toml.decode(
    (Path(__file__).parent / "data" / "kubelet_forms.toml").read_bytes(), type=_Table
)
FORMS = _TABLE.forms
"""The forms that are known."""
KUBEADM, _KUBEADM_GROUP = "kubeadm", "kubeadm.k8s.io"
_PATHS = {
    **{name.replace("-", ""): path for name, path in FLAG_PATHS.items()},
    **{str(name).lower(): str(name) for name in KubeletConfiguration.__struct_encode_fields__},
    **_TABLE.names,
}
"""The fields by all names that forms have for them, in lower case without hyphens."""
_KINDS = {path: FLAG_KINDS[name] for name, path in FLAG_PATHS.items()}
_KEYS = {
    **{signal.replace(".", "").lower(): str(signal) for signal in Signal},
    "ephemeralstorage": "ephemeral-storage",
}
FORM_KINDS = frozenset({KIND, *(kind for form in FORMS for kind in form.kinds)})


class WrittenKubeletConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration of the kubelet that documents contain, as KubeletConfiguration."""

    number: int
    """The document's index."""
    document: dict[str, Any]
    prefix: str = ""
    """Where its fields stand in the document, e.g. `spec.kubeletConfig.`."""
    form: str = KIND
    not_judged: tuple[str, ...] = ()
    kernel_arguments: tuple[str, ...] = ()
    """What the document sets for the kernel besides."""

    def note(self) -> str:
        """How it was read, and what of it is not judged; empty for a plain KubeletConfiguration."""
        parts = [f"read as {self.form}"] if self.form != KIND else []
        if self.kernel_arguments:
            parts.append(f"kernel arguments: {' '.join(self.kernel_arguments)}")
        parts += [f"not judged: {', '.join(self.not_judged)}"] if self.not_judged else []
        return "; ".join(parts)


def form_documents(content: bytes, source: str) -> list[Any]:
    """The values of the documents of a file: YAML, JSON, TOML or flags.

    Errors: InputError with the faults of the syntax.
    """
    if source.endswith(".toml"):
        try:
            return [tomllib.loads(decode_text(content, source))]
        except tomllib.TOMLDecodeError as error:
            raise InputError([Fault(rule=f"not valid TOML: {error}", source=source)]) from None
    text = decode_text(content, source)
    if not _MAPPING.search(text) and (flags := _flags_of_lines(text, source)):
        return [{"KUBELET_EXTRA_ARGS": flags}]
    return [document.value for document in parse_documents(content, source)]


_LINE_OF_FLAGS = re.compile(r"""\s*(--[a-z]|(Environment=)?["']?KUBELET_\w*ARGS=|ExecStart=\S*kubelet\s)""")
_MAPPING = re.compile(r"^\s*[\w.-]+:(\s|$)", re.MULTILINE)
_BEFORE_FLAGS = re.compile(r"(\w+=)*")


def _flags_of_lines(text: str, source: str) -> list[str]:
    r"""The flags in lines of flags, in the variables of an environment file, and in a unit of systemd.

    Errors: InputError for quotes that do not end.

    >>> _flags_of_lines("[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--max-pods=5 --v 2'\n--node-ip=::1 $MORE", "unit")
    ['--max-pods=5', '--v=2', '--node-ip=::1']
    """
    flags = list[str]()
    for line in filter(_LINE_OF_FLAGS.match, text.replace("\\\n", " ").splitlines()):
        try:
            words = [
                word
                for quoted in shlex.split(line, comments=True)
                for word in shlex.split(_BEFORE_FLAGS.sub("", quoted, count=1))
            ]
        except ValueError as error:
            rule = f"not the flags of a kubelet: {error}"
            raise InputError([Fault(rule=rule, value=line.strip(), source=source)]) from None
        starts_at = len(flags)
        for word in words:
            if word.startswith("-"):
                flags.append(word)
            elif len(flags) > starts_at and not word.startswith("$"):
                flags[-1] += f"={word}"
    return flags


def kubelet_configs(values: Sequence[Any], source: str) -> list[WrittenKubeletConfig]:
    """The configurations in the documents of a file; flags of kubeadm win over its KubeletConfiguration.

    Errors: InputError for flags in a wrong notation and for fields that a distribution refuses.
    """
    configs = [
        WrittenKubeletConfig(number=number, document=value)
        for number, value in enumerate(values)
        if isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) == (GROUP_VERSION, KIND)
    ]
    for number, value in enumerate(values):
        if (form := _form_of(value, source)) is None:
            continue
        if form.name == KUBEADM and configs:
            for config in _configs(form, value, number, source, configs[0].document):
                configs[0] = replace(configs[0], document=config.document, not_judged=config.not_judged)
        else:
            configs += _configs(form, value, number, source, form.adds)
    return configs


def read_kubelet_configs(file: InputFile) -> list[WrittenKubeletConfig]:
    """The configurations in a file of any form: YAML, JSON or TOML; none if the form is not known.

    Errors: InputError with the faults of the syntax, and those of `kubelet_configs`.
    """
    return kubelet_configs(form_documents(file.content, file.source), file.source)


def unknown_form(value: Any) -> str:
    """The rule that a document of no known form breaks, with the form that is most like it."""
    return f"no known form of a kubelet configuration; the nearest is {_nearest_form(value)}"


def _nearest_form(value: Any) -> str:
    """The known form that is most like the document: by API group and kind if it has a kind, else by its fields."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - start-up time

    kind = value.get("kind") if isinstance(value, dict) else None
    own_name = f"{KIND} of {GROUP_VERSION}"
    if kind is None:
        if isinstance(value, dict) and {*KubeletConfiguration.__struct_encode_fields__} & value.keys():
            return own_name
        text = _signature(value)
        known = {form.name: f"{form.fields} {form.flags}" for form in FORMS if not form.group}
    else:
        text = f"{str(value.get('apiVersion', '')).partition('/')[0]} {kind}"
        known = {form.name: f"{form.group} {' '.join(form.kinds)}" for form in FORMS if form.group}
        known[own_name] = f"{GROUP_VERSION.partition('/')[0]} {KIND}"
    return max(known, key=lambda name: SequenceMatcher(None, text, known[name]).ratio())


def _signature(value: Any) -> str:
    return f"{' '.join(map(str, value))} {_signature(value.get('spec'))}" if isinstance(value, dict) else ""


def _form_of(value: Any, source: str) -> KubeletForm | None:
    if not isinstance(value, dict):
        return None
    group, kind = str(value.get("apiVersion", "")).partition("/")[0], value.get("kind")
    for form in FORMS:
        if form.group:
            is_form = form.group == group and kind in form.kinds
        elif form.fields == ("",):
            names = {str(name) for name in value}
            is_own = source.endswith(".json") or bool(names & {*form.telling_names})
            is_form = bool(names) and is_own and names <= {*form.known_names}
        else:
            is_form = kind is None and any(
                True for path in (*form.fields, *form.flags) for _ in _at(value, path)
            )
        if is_form:
            return form
    return None


def _at(value: Any, path: str, before: str = "") -> Iterator[tuple[str, Any]]:
    """What stands at the path, with its own path; nothing where there is none."""
    step, _, rest = path.partition(".")
    if not path:
        yield before, value
        return
    child = value.get(step.removesuffix("[]")) if isinstance(value, dict) else None
    place = f"{before}.{step}" if before else step
    if step.endswith("[]"):
        for index, item in enumerate(child if isinstance(child, list) else ()):
            yield from _at(item, rest, f"{place[:-2]}[{index}]")
    elif child is not None:
        yield from _at(child, rest, place)


def _configs(
    form: KubeletForm, value: Any, number: int, source: str, below: Mapping[str, Any]
) -> Iterator[WrittenKubeletConfig]:
    """The configurations in a document of the form."""
    if form.renders:
        rendered, arguments = rendered_kubelet_config(value, source)
        yield WrittenKubeletConfig(
            number=number,
            document={**merge_patch(below, rendered), "apiVersion": GROUP_VERSION, "kind": KIND},
            form=form.name,
            not_judged=(form.not_judged,),
            kernel_arguments=arguments,
        )
        return
    for path in form.texts:
        for text_path, text in _at(value, path):
            yield from _configs_in_text(form, text, number, text_path, source)
    flags: dict[str, Any] = {}
    unjudged = [form.not_judged] if form.not_judged else []
    for path in form.flags:
        for place in _at(value, path):
            _read_flags(place, flags, unjudged, source)
    written = [place for path in form.fields for place in _at(value, path)]
    for path, fields in written or ([("", {})] if flags else []):
        if not isinstance(fields, dict):
            raise InputError([Fault(rule="must be an object", path=path, value=fields, source=source)])
        _refuse_forbidden(form, fields, path, source)
        unknown = list[str]()
        document = _translated(fields, unknown) if form.has_own_names else fields
        document = merge_patch(below, document) if form.merges_maps else {**below, **document}
        if form.is_layered and path == form.fields[0]:
            below = document
        yield WrittenKubeletConfig(
            number=number,
            document=overridden({**document, "apiVersion": GROUP_VERSION, "kind": KIND}, flags.items()),
            prefix=f"{path}." if path else "",
            form=form.name,
            not_judged=(*unjudged, *(f"{path}.{name}" if path else name for name in unknown)),
        )


def _configs_in_text(
    form: KubeletForm, text: Any, number: int, place: str, source: str
) -> Iterator[WrittenKubeletConfig]:
    """The configuration in a text that is a file for kubeadm; a text without one is something else."""
    if not isinstance(text, str) or not (KIND in text or "kubeletExtraArgs" in text):
        return
    values = [document.value for document in parse_documents(text.encode(), f"{source}: {place}")]
    typed = [
        {"apiVersion": GROUP_VERSION if value.get("kind") == KIND else _KUBEADM_GROUP, **value}
        for value in values
        if isinstance(value, dict)
    ]
    for config in kubelet_configs(typed, source):
        yield replace(
            config,
            number=number,
            document={**form.adds, **config.document},
            prefix=f"{place}.",
            form=form.name,
            not_judged=(*filter(None, [form.not_judged]), *config.not_judged),
        )


def _read_flags(place: tuple[str, Any], flags: dict[str, Any], unjudged: list[str], source: str) -> None:
    """Adds the fields that flags set, and the flags that set none."""
    path, written = place
    faults: list[Fault] = []
    for flag in written_flags(_arguments(written), faults):
        if flag.name in FLAG_PATHS:
            override(flags, flag, faults)
        else:
            is_known = flag.name in FLAG_KINDS
            unjudged.append(f"--{flag.name}" + ("" if is_known else ", which the kubelet does not have"))
    if faults:
        located = [replace(fault, path=f"{path}: {fault.source}", source=source) for fault in faults]
        raise InputError(located)
    for name in [name for name in flags if name in FLAG_PATHS]:
        flags[FLAG_PATHS[name]] = flags.pop(name)


def _arguments(written: Any) -> list[str]:
    """Flags as a command line has them."""
    pairs: list[tuple[Any, Any]]
    if isinstance(written, dict):
        pairs = [(name, item) for name, value in written.items() for item in _listed(value)]
    else:
        items = [item if isinstance(item, dict) else {"name": item} for item in _listed(written)]
        pairs = [(item.get("name"), item.get("value")) for item in items]
    return [
        f"--{str(name).removeprefix('--')}" + ("" if item is None else f"={_text(item)}")
        for name, item in pairs
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_forbidden(form: KubeletForm, fields: Mapping[str, Any], path: str, source: str) -> None:
    faults = [
        Fault(
            rule=f"KubeletConfiguration: {name} is not allowed to be set",
            path=f"{path}.{name}",
            source=source,
        )
        for name in form.forbids
        if fields.get(name) not in (None, "", [], {})
    ]
    if faults:
        raise InputError(faults)


def _translated(fields: Mapping[str, Any], unknown: list[str]) -> dict[str, Any]:
    """Fields with names and values as KubeletConfiguration has them; adds the names of the others."""
    overrides: list[tuple[str, Any]] = []
    for written, value in fields.items():
        name = str(written).replace("-", "").lower()
        if name in ("memorymanager", "topologymanager") and isinstance(value, dict):
            named = [(str(part), item) for part, item in value.items()]
            overrides += [(_PATHS.get(name + part.lower(), part), item) for part, item in named]
        elif name in _TABLE.units:
            path, unit = _TABLE.units[name]
            overrides.append((path, f"{value}{unit}"))
        elif name in _PATHS:
            overrides.append((_PATHS[name], _plain_value(_PATHS[name], value)))
        else:
            unknown.append(str(written))
    return overridden({}, overrides)


def _plain_value(path: str, value: Any) -> Any:
    """A value in a flag's notation, or with keys or numbers as texts, as KubeletConfiguration has it.

    >>> _plain_value("evictionHard", "memory.available<100Mi"), _plain_value("podPidsLimit", "4096")
    ({'memory.available': '100Mi'}, 4096)
    """
    kind = _KINDS.get(path, FlagKind.TEXT)
    if path == "reservedMemory" and isinstance(value, dict):
        amounts = {numa: limits for numa, limits in value.items() if isinstance(limits, dict)}
        return [
            {
                "numaNode": int(numa) if str(numa).isdecimal() else numa,
                "limits": merge_patch(limits, {"enabled": None}),
            }
            for numa, limits in amounts.items()
            if limits.get("enabled", True)
        ]
    if kind is FlagKind.MAP and isinstance(value, list):
        return dict.fromkeys(map(str, value), "true")
    if kind is FlagKind.BOOLEAN_MAP and isinstance(value, dict):
        value = ",".join(f"{name}={_text(item)}" for name, item in value.items())
    if kind is FlagKind.TAINTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if isinstance(value, dict):
        return {_KEYS.get(str(key).replace(".", "").lower(), key): item for key, item in value.items()}
    if isinstance(value, str) and kind is not FlagKind.TEXT:
        try:
            return parsed_value(value, kind)
        except ValueError:
            return value
    return value
