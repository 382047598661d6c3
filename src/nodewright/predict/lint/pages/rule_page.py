"""The documentation page of a lint rule, and the manifests that its examples start from."""

import msgspec


class RulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's documentation: title, message with placeholders for facts, rationale, remedy and examples."""

    title: str
    message: str
    """The message of a finding; names in braces are replaced by its facts."""
    rationale: str
    remedy: str
    bad: str
    """A file in which this rule, and no other, has a finding."""
    replacements: tuple[tuple[str, str], ...]
    """The replacements that turn it into a file without findings."""
    node: str = ""
    """The machine of the catalogue for the examples; empty: none."""
    kubelet_config: str = ""
    """The KubeletConfiguration of that machine."""

    @property
    def good(self) -> str:
        """The same file, corrected."""
        text = self.bad
        for old, new in self.replacements:
            assert old in text, f"{self.title}: the example has no {old!r}"
            text = text.replace(old, new, 1)
        return text


def pod_manifest(spec: str, *, name: str = "web", meta: str = "") -> str:
    """A Pod with this spec, which is indented by two."""
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n{meta}spec:\n{spec}"


def workload_manifest(kind: str, spec: str, *, name: str = "web", version: str = "apps/v1") -> str:
    """A workload with this spec, indented by six, in its pod template."""
    return f"""apiVersion: {version}
kind: {kind}
metadata:
  name: {name}
spec:
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
{spec}"""


def kubelet_configuration(fields: str) -> str:
    """A KubeletConfiguration with these fields."""
    return f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}"
