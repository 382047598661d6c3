"""What a rule's page holds, and the plain pods that its examples begin with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is said of a rule: a title, a sentence with places for the facts, why it matters, how it is mended."""

    title: str
    says: str
    """The sentence of a finding; names in braces stand for its facts."""
    why: str
    mend: str
    bad: str
    """A file of which the rule finds something, and no other rule."""
    change: tuple[tuple[str, str], ...]
    """What of it is written otherwise, so that nothing is found."""
    node: str = ""
    """The machine of the catalogue that the examples are judged on; empty: none is given."""
    kubelet: str = ""
    """The KubeletConfiguration of that machine."""

    @property
    def good(self) -> str:
        """The same file, mended."""
        text = self.bad
        for old, new in self.change:
            assert old in text, f"{self.title}: the example has no {old!r}"
            text = text.replace(old, new, 1)
        return text


def pod(spec: str, *, name: str = "web", meta: str = "") -> str:
    """A Pod with that spec, indented by two."""
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n{meta}spec:\n{spec}"


def workload(kind: str, spec: str, *, name: str = "web", version: str = "apps/v1") -> str:
    """A Deployment or its like, whose pod template has that spec, indented by six."""
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


def kubelet(fields: str) -> str:
    """A KubeletConfiguration with these fields."""
    return f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}"
