"""Rules about claims for devices, beyond the examples of their pages."""

from pathlib import Path

import pytest

from nodewright.documents.formats.inventory import load_inventory
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_run import lint_result
from nodewright.predict.lint.rules import ALL_RULES

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: one}
spec:
  driver: gpu.example.com
  pool: {name: one, resourceSliceCount: 1}
  nodeName: one
  devices:
  - name: gpu-0
    attributes: {model: {string: A100}, resource.kubernetes.io/pcieRoot: {string: "pci0000:4d"}, both: {int: 1}}
    capacity: {memory: {value: 80Gi}, both: {value: 1}}
  - name: gpu-1
    attributes: {model: {string: H100}}
"""
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
"""


def findings(tmp_path: Path, *documents: str) -> list[str]:
    file = tmp_path / "claims.yaml"
    file.write_text("---".join(documents))
    result = lint_result(load_lint_input(load_inventory([str(file)])), ALL_RULES)
    return [f"{each.rule.id} {each.path}: {each.text}" for each in result.findings]


def claim(selector: str, *, device_class: str = "gpu", version: str = "v1") -> str:
    fields = f"deviceClassName: {device_class}, selectors: [{{cel: {{expression: '{selector}'}}}}]"
    exactly = fields if version == "v1beta1" else f"exactly: {{{fields}}}"
    return (
        f"\napiVersion: resource.k8s.io/{version}\nkind: ResourceClaim\nmetadata: {{name: c}}\n"
        f"spec: {{devices: {{requests: [{{name: r, {exactly}}}]}}}}\n"
    )


# A selector of a claim for the devices above  ->  the rule and a part of its text.
SELECTORS = """
    device.attributes["gpu.example.com"].model == "A100"               ->  -
    device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:4d"  ->  -
    device.attributes["gpu.example.com"].both == 1                     ->  -
    device.capacity["gpu.example.com"].both == quantity("1")           ->  -
    device.attributes["gpu.example.com"].?serial.orValue("") == ""     ->  -
    has(device.attributes["gpu.example.com"].serial) || true           ->  -
    device.attributes["nic.example.org"].mac == "a"                    ->  NW502 none of the 2 devices of class gpu
    device.attributes["gpu.example.com"].modle == "A100"               ->  NW501 column 38: no device of the given slices has an attribute `modle` in domain gpu.example.com; did you mean `model` (attribute)?
    device.attributes["gpu.example.com"].memory == "A100"              ->  NW501 has an attribute `memory` in domain gpu.example.com; did you mean `memory` (capacity)?
    device.attributes["gpu.example.com"]["modle"] == "A100"            ->  NW501 column 39: no device
    device.attributes["gpu.example.com"].?modle.orValue("") == ""      ->  NW501 column 39: no device
    device.attributes["gpu.example.com"].serial == "1"                 ->  NW501 has an attribute `serial` in domain gpu.example.com
    device.attributes["gpu.exmaple.com"].model == "A100"               ->  NW501 has names in domain gpu.exmaple.com; did you mean `gpu.example.com`?
    device.attributes["gpu.nvidia.com"].productname == "A100"          ->  NW501 the driver gpu.nvidia.com publishes no attribute `productname`; did you mean `productName` (attribute)?
    device.attributes["gpu.example.com"].model == "B200"               ->  NW502 none of the 2 devices of class gpu in the given slices meets the selector
"""


@pytest.mark.parametrize("line", SELECTORS.strip().splitlines())
def test_selectors(line: str, tmp_path: Path) -> None:
    selector, _, expected = line.partition("->")
    found = findings(tmp_path, SLICE, CLASS, claim(selector.strip()))
    path = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    rule, _, text = expected.strip().partition(" ")
    assert [each.split(": ")[0] for each in found] == ([] if rule == "-" else [f"{rule} {path}"])
    assert all(text in each for each in found)


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_the_attributes_of_constraints_are_compared_with_those_of_devices(kind: str, tmp_path: Path) -> None:
    names = ["gpu.example.com/modle", "gpu.example.com/model", "resource.kubernetes.io/pcieRoot"]
    constraints = ", ".join(
        [*(f"{{matchAttribute: {name}}}" for name in names), "{distinctAttribute: gpu.example.com/bath}"]
    )
    devices = f"devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu}}}}], constraints: [{constraints}]}}"
    spec = f"spec: {{{devices}}}" if kind == "ResourceClaimTemplate" else devices
    document = f"\napiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: c}}\nspec: {{{spec}}}\n"
    path = f"spec.{'spec.' if kind == 'ResourceClaimTemplate' else ''}devices.constraints"
    assert [each.split(": no device")[0] for each in findings(tmp_path, SLICE, CLASS, document)] == [
        f"NW501 {path}[0].matchAttribute",
        f"NW501 {path}[3].distinctAttribute",
    ]
    found = findings(tmp_path, SLICE, CLASS, document)[0]
    assert found.endswith("did you mean `model` (attribute)?")


def test_without_slices_only_known_drivers_are_judged(tmp_path: Path) -> None:
    for selector, rules in (
        ('device.attributes["gpu.example.com"].modle == "A100"', []),
        ('device.attributes["gpu.nvidia.com"].new == "A100"', []),
        ('device.capacity["gpu.nvidia.com"].memroy == quantity("1")', ["NW501"]),
    ):
        assert [each[:5] for each in findings(tmp_path, claim(selector))] == rules


def test_a_class_without_devices_is_judged_itself_and_its_claims_are_not(tmp_path: Path) -> None:
    other = CLASS.replace("gpu.example.com", "nic.example.com")
    selector = 'device.attributes["gpu.example.com"].model == "A100"'
    assert [each.split(": ")[0] for each in findings(tmp_path, SLICE, other, claim(selector))] == [
        "NW502 spec.selectors[0].cel.expression"
    ]


def test_the_path_is_that_of_the_objects_version(tmp_path: Path) -> None:
    selector = 'device.attributes["gpu.example.com"].modle == "A100"'
    (found,) = findings(tmp_path, SLICE, CLASS, claim(selector, version="v1beta1"))
    assert found.startswith("NW501 spec.devices.requests[0].selectors[0].cel.expression: ")


@pytest.mark.parametrize(
    ("request_fields", "rules"),
    [
        ("exactly: {deviceClassName: gpu, allocationMode: All}", ["NW504"]),
        ("exactly: {deviceClassName: gpu, allocationMode: All, adminAccess: true}", []),
        ("firstAvailable: [{name: a, deviceClassName: gpu, allocationMode: All}]", ["NW504"]),
        (
            'exactly: {deviceClassName: gpu, allocationMode: All, selectors: [{cel: {expression: "true"}}]}',
            [],
        ),
        ("exactly: {deviceClassName: gpus}", ["NW503"]),
        ("firstAvailable: [{name: a, deviceClassName: gpu}, {name: b, deviceClassName: none}]", ["NW503"]),
    ],
)
def test_modes_and_classes(request_fields: str, rules: list[str], tmp_path: Path) -> None:
    template = (
        "\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\n"
        f"spec: {{spec: {{devices: {{requests: [{{name: r, {request_fields}}}]}}}}}}\n"
    )
    assert [each[:5] for each in findings(tmp_path, CLASS, template)] == rules


@pytest.mark.parametrize(
    ("created", "losers"),
    [(("", ""), ["b"]), (("2026-01-01", "2026-01-02"), ["a"]), (("2026-01-02", "2026-01-01"), ["b"])],
)
def test_the_newest_class_serves_an_extended_resource(
    created: tuple[str, str], losers: list[str], tmp_path: Path
) -> None:
    classes = [
        f"\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}"
        + (f', creationTimestamp: "{day}T00:00:00Z"' if day else "")
        + "}\nspec: {extendedResourceName: example.com/gpu}\n"
        for name, day in zip("ab", created, strict=True)
    ]
    file = tmp_path / "classes.yaml"
    file.write_text("---".join(classes))
    result = lint_result(load_lint_input(load_inventory([str(file)])), ALL_RULES)
    assert [(each.rule.id, each.subject) for each in result.findings] == [
        ("NW505", f"DeviceClass {name}") for name in losers
    ]


@pytest.mark.parametrize(
    ("device_class", "selector", "rules"),
    [
        ("dra.cpu", None, ["NW506"]),
        ("fast", 'device.driver == "dra.cpu"', ["NW506"]),
        ("fast", 'device.driver == "dra.example.com"', []),
        ("gpu", None, []),
    ],
)
def test_claims_of_the_cpu_driver(
    device_class: str, selector: str | None, rules: list[str], tmp_path: Path
) -> None:
    config = (
        "\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
        'kubeReserved: {cpu: "1"}\n'
    )
    documents = [config, claim("true", device_class=device_class)]
    if selector is not None:
        selected = CLASS.replace("name: gpu", f"name: {device_class}")
        documents.append(selected.replace('device.driver == "gpu.example.com"', selector))
    assert [each[:5] for each in findings(tmp_path, *documents)] == rules
