"""Who makes which pods: what is there already is not made once more, and controllers lend their pods a selector."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nodewright.world.fleet.selecting import own_selector

_HASH = "pod-template-hash"


class Owner(NamedTuple):
    """A controller by its name."""

    kind: str
    namespace: str
    name: str


def owner_of(meta: Mapping[str, Any], namespace: str) -> Owner | None:
    """The controller of an object, as its metadata names it; None: it belongs to nobody."""
    found = meta.get("ownerReferences")
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and one.get("controller"):
            return Owner(str(one.get("kind")), namespace, str(one.get("name")))
    return None


@dataclass(slots=True)
class Owners:
    """The controllers of the files, and how many pods of theirs are in them, too."""

    above: dict[Owner, Owner | None] = field(default_factory=dict)
    """Each controller, and who made it: a Deployment its ReplicaSets, a CronJob its Jobs."""
    selectors: dict[Owner, Mapping[str, Any] | None] = field(default_factory=dict)
    pods: Counter[Owner] = field(default_factory=Counter)
    """By the controller that they name: how many pods there are; of a Job, those that have ended among them."""
    nodes: dict[Owner, set[str]] = field(default_factory=dict)
    """Where they are."""

    def take_controller(self, value: Mapping[str, Any], namespace: str) -> Owner:
        """Take in what makes pods."""
        meta = value["metadata"]
        namespace = str(meta.get("namespace") or namespace)
        found = Owner(str(value.get("kind")), namespace, str(meta.get("name")))
        self.above[found] = owner_of(meta, namespace)
        self.selectors[found] = own_selector(value)
        return found

    def take_pod(self, owner: Owner, labels: Mapping[str, Any], node: str) -> None:
        """Take in a pod of this controller.

        Follows: v1.36, pkg/controller/deployment/sync.go, getNewReplicaSet: how a Deployment names its ReplicaSets.
        """
        self.pods[owner] += 1
        stem, is_hashed, _ = owner.name.rpartition(f"-{labels.get(_HASH)}")
        if owner.kind == "ReplicaSet" and is_hashed:
            self.above.setdefault(owner, Owner("Deployment", owner.namespace, stem))
        self.nodes.setdefault(owner, set()).add(node)

    def is_made(self, owner: Owner) -> bool:
        """Whether the files have the one, too, that makes this controller: then it makes the pods."""
        return self.above.get(owner) in self.selectors

    def selector_of(self, owner: Owner | None) -> Mapping[str, Any] | None:
        """By what a pod is told that belongs to this controller: the selector of the first above it that has one."""
        found = (self.selectors.get(one) for one in self._up(owner))
        return next((one for one in found if one is not None), None)

    def there(self) -> Counter[Owner]:
        """How many pods each controller of the files has already, those of controllers that it made among them."""
        found: Counter[Owner] = Counter()
        for owner, count in self.pods.items():
            for one in self._up(owner):
                found[one] += count
        return found

    def add(self, other: "Owners") -> None:
        """Take in what others have found."""
        # What a file says of a controller counts more than what its pods let think.
        self.above = {**self.above, **other.above, **{one: self.above[one] for one in self.selectors}}
        self.selectors |= other.selectors
        self.pods += other.pods
        for owner, nodes in other.nodes.items():
            self.nodes.setdefault(owner, set()).update(nodes)

    def _up(self, owner: Owner | None) -> Iterator[Owner]:
        """The controller, the one above it, and so on; each once, whatever they say of one another."""
        seen: set[Owner] = set()
        while owner is not None and owner not in seen:
            seen.add(owner)
            yield owner
            owner = self.above.get(owner)
