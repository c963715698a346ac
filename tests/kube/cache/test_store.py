"""The store: keys, uids, indexes and snapshots, against a plain dictionary."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubeshare.kube.cache.store import DELETED, Change, EncodedObject, Store
from kubeshare.kube.meta import Key

NAMES = st.sampled_from(["a", "b", "c", "d"])
NODES = st.sampled_from(["n1", "n2", ""])


def make(name: str, uid: str, version: int, node: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": node}}


def by_node(obj: dict[str, Any]) -> list[str]:
    return [obj["spec"]["nodeName"]] if obj["spec"]["nodeName"] else []


class StoreMachine(RuleBasedStateMachine):
    """Random changes; its reports, replayed, must give what it holds."""

    encode_as: type[dict[str, Any]] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[dict[str, Any]] = Store({"node": by_node}, encode_as=self.encode_as)
        self.model: dict[str, dict[str, Any]] = {}
        self.replayed: dict[str, dict[str, Any]] = {}  # uid -> object
        self.version = 0
        self.snapshot = (self.store.snapshot(), dict[Key, Any]())

    def _tell(self, changes: list[Any]) -> None:
        for change in changes:
            uid = change.object["metadata"]["uid"]
            if change.type == "ADDED":
                assert uid not in self.replayed
                self.replayed[uid] = change.object
            elif change.type == "MODIFIED":
                assert self.replayed[uid] == change.old
                self.replayed[uid] = change.object
            else:
                del self.replayed[uid]

    def _new(self, name: str, node: str, *, reuse: bool) -> dict[str, Any]:
        self.version += 1
        old = self.model.get(name)
        uid = old["metadata"]["uid"] if old and not reuse else f"uid-{self.version}"
        return make(name, uid, self.version, node)

    @rule(name=NAMES, node=NODES, reuse=st.booleans())
    def put(self, name: str, node: str, *, reuse: bool) -> None:
        self.model[name] = self._new(name, node, reuse=reuse)
        self._tell(self.store.put(self.model[name]))

    @rule(name=NAMES)
    def put_again(self, name: str) -> None:
        if name in self.model:
            assert self.store.put(dict(self.model[name])) == []

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        changes = self.store.remove(Key("ns", name))
        assert len(changes) == (name in self.model)
        self._tell(changes)
        self.model.pop(name, None)

    @rule(name=NAMES)
    def remove_a_namesake_of_the_past(self, name: str) -> None:
        assert self.store.remove(Key("ns", name), uid="uid-of-old") == []

    @rule(names=st.sets(NAMES), node=NODES, reuse=st.booleans())
    def replace(self, names: set[str], node: str, *, reuse: bool) -> None:
        self.model = {name: self._new(name, node, reuse=reuse) for name in sorted(names)}
        self._tell(self.store.replace(self.model.values()))

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = (self.store.snapshot(), dict(self.store.snapshot()))

    @invariant()
    def holds_what_it_told(self) -> None:
        assert dict(self.store.snapshot()) == {
            Key("ns", name): obj for name, obj in self.model.items()
        }
        assert {obj["metadata"]["uid"]: obj for obj in self.model.values()} == self.replayed
        assert len(self.store) == len(self.model)
        for name in ("a", "b", "c", "d"):
            assert (Key("ns", name) in self.store) == (name in self.model)
        for uid, obj in self.replayed.items():
            assert self.store.by_uid(uid) == obj

    @invariant()
    def indexes_follow(self) -> None:
        for node in ("n1", "n2"):
            found = {obj["metadata"]["name"] for obj in self.store.by_index("node", node)}
            wanted = {name for name, obj in self.model.items() if by_node(obj) == [node]}
            assert found == wanted

    @invariant()
    def snapshots_stay_as_they_were(self) -> None:
        view, copy = self.snapshot
        assert dict(view) == copy


class PackedStoreMachine(StoreMachine):
    """The same of a store that keeps bytes."""

    encode_as = dict[str, Any]


_THOROUGH = settings(max_examples=40, stateful_step_count=25, deadline=None)
StoreMachine.TestCase.settings = PackedStoreMachine.TestCase.settings = _THOROUGH
TestStore = StoreMachine.TestCase
TestPackedStore = PackedStoreMachine.TestCase


def test_each_reader_of_an_encoded_object_gets_its_own_copy() -> None:
    store: Store[dict[str, Any]] = Store(encode_as=dict)
    store.put(make("a", "1", 1, "n1"))
    read = store.get("a", "ns")
    assert read is not None
    read["spec"]["nodeName"] = "changed"
    assert store.snapshot()[Key("ns", "a")]["spec"]["nodeName"] == "n1"
    assert Key("ns", "a") in store.snapshot()
    assert Key("ns", "b") not in store.snapshot()


def test_an_index_added_late_files_what_is_there() -> None:
    store: Store[dict[str, Any]] = Store()
    store.put(make("a", "1", 1, "n1"))
    store.add_index("node", by_node)
    assert [obj["metadata"]["name"] for obj in store.by_index("node", "n1")] == ["a"]
    assert store.by_index("node", "n2") == ()


def test_a_deletion_has_the_last_state_and_the_one_before() -> None:
    store: Store[dict[str, Any]] = Store()
    seen, last = make("a", "1", 1), make("a", "1", 2)
    store.put(seen)
    assert store.remove(Key("ns", "a"), uid="1", last=last) == [Change(DELETED, last, seen)]
    store.put(seen)
    assert store.remove(Key("ns", "a")) == [Change(DELETED, seen, seen)]


def test_no_step_goes_through_a_whole_list() -> None:
    """A reader of the store may run after each."""
    store: Store[dict[str, Any]] = Store()
    for number in range(100):
        store.put(make(f"old-{number}", f"old-{number}", 1))
    read = 0

    def listed() -> Iterator[EncodedObject]:
        nonlocal read
        for number in range(100):
            read += 1
            yield store.encode(make(f"new-{number}", f"new-{number}", 2))

    changes: list[Change[dict[str, Any]]] = []
    for changed in store.iter_replace(listed()):
        before, read = read, 0
        assert before <= 1
        assert len(changed) <= 1
        changes += changed
    assert Counter(each.type for each in changes) == {"ADDED": 100, "DELETED": 100}
