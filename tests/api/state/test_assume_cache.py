"""A program sees its own writes before the watch delivers them."""

import asyncio
from collections.abc import Callable

from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS, Raw, Resource
from kubeshare.simulator.control import FakeApiServer, run_virtual, until

THINGS = Resource("test", "v1", "things", "Thing", namespaced=False)
KEY = Key("", "a")


def thing(version: str, uid: str = "u") -> Raw:
    return {"metadata": {"name": "a", "uid": uid, "resourceVersion": version}}


class Views:
    """A reflector's store that the test fills, and the view of it."""

    def __init__(self) -> None:
        reflector: Reflector[Raw] = Reflector(FakeApiServer().client(), THINGS)
        self._reflector = reflector
        self.latest = AssumeCache(reflector)

    def subscribe(self, handler: Callable[[Change[Raw]], None]) -> None:
        self._reflector.subscribe(handler)

    def watched(self, *versions: str) -> None:
        for version in versions:
            self._reflector._notify(self._reflector.store.put(thing(version)))

    def reported_up_to(self, version: str) -> None:
        self._reflector._loop.resource_version = version

    def listed(self, version: str) -> None:
        """A list of that version shows what the store has."""
        self.reported_up_to(version)
        for handler in self._reflector._list_handlers:
            self._reflector._notify(handler())

    def gone(self) -> None:
        self._reflector._notify(self._reflector.store.remove(KEY))

    @property
    def version(self) -> str:
        found = self.latest.get(KEY)
        assert list(self.latest.all()) == ([found] if found else [])
        return found["metadata"]["resourceVersion"] if found else ""


def test_an_answer_is_seen_at_once_and_until_the_watch_is_as_far() -> None:
    async def main() -> None:
        views = Views()
        views.watched("1")
        views.latest.assume(thing("2"))
        views.latest.assume(thing("3"))
        assert views.version == "3"
        views.watched("2")
        assert views.version == "3"
        views.watched("3")
        assert views.version == "3"
        views.watched("4")
        assert views.version == "4"

    run_virtual(main())


def test_somebody_elses_later_write_replaces_an_answer() -> None:
    async def main() -> None:
        views = Views()
        views.watched("1")
        views.latest.assume(thing("2"))
        views.watched("9")
        assert views.version == "9"

    run_virtual(main())


def test_an_answer_is_told_of_that_a_later_change_has_replaced() -> None:
    async def main() -> None:
        views = Views()
        versions: list[str] = []

        def note(change: Change[Raw]) -> None:
            written = views.latest.superseded(change)
            versions.append(written["metadata"]["resourceVersion"] if written else "")

        views.subscribe(note)
        views.watched("1")
        views.latest.assume(thing("3"))
        views.watched("2", "3", "4")
        views.latest.assume(thing("5"))
        views.watched("6", "7")
        assert versions == ["", "", "", "", "5", ""]

    run_virtual(main())


def test_an_answer_that_the_watch_has_told_already_changes_nothing() -> None:
    async def main() -> None:
        views = Views()
        views.watched("1", "2")
        views.latest.assume(thing("2"))
        views.watched("3")
        assert views.version == "3"

    run_virtual(main())


def test_an_answer_that_comes_later_than_what_others_made_of_it_changes_nothing() -> None:
    async def main() -> None:
        views = Views()
        views.watched("10")
        views.latest.assume(thing("9"))
        assert views.version == "10"

    run_virtual(main())


def test_what_was_made_is_there_and_what_was_deleted_is_not() -> None:
    async def main() -> None:
        views = Views()
        views.latest.assume(thing("1"))
        assert views.version == "1"
        views.watched("1")
        views.gone()
        assert views.version == ""
        views.latest.assume(thing("5"))
        views.latest.forget(thing("5"))
        assert views.version == ""

    run_virtual(main())


def test_what_vanished_while_the_watch_was_broken_is_gone() -> None:
    async def main() -> None:
        views = Views()
        views.watched("1")
        views.latest.assume(thing("2"))
        views.gone()
        assert views.version == ""

    run_virtual(main())


def test_the_end_of_a_namesake_is_not_that_of_what_was_made_since() -> None:
    async def main() -> None:
        views = Views()
        views.watched("1")
        views.latest.assume(thing("5", uid="another"))
        views.gone()
        assert views.version == "5"

    run_virtual(main())


def test_what_a_live_read_did_not_find_is_gone_though_the_watch_lags_behind() -> None:
    async def main() -> None:
        views = Views()
        views.latest.add_index("uid", lambda one: [one["metadata"]["uid"]])
        views.watched("1")
        views.latest.forget(thing("1"))
        assert views.version == ""
        assert views.latest.by_index("uid", "u") == []
        views.latest.assume(thing("5"))
        assert views.version == "5"
        views.gone()
        assert views.version == ""
        views.watched("9")
        assert views.version == "9"

    run_virtual(main())


def test_what_is_known_to_be_gone_says_nothing_of_a_later_object_of_its_name() -> None:
    async def main() -> None:
        views = Views()
        views.watched("7")
        views.latest.forget(thing("1", uid="before"))
        assert views.version == "7"
        views.latest.assume(thing("9", uid="after"))
        views.latest.forget(thing("7"))
        assert views.version == "9"

    run_virtual(main())


def test_what_was_made_is_believed_in_until_a_watch_is_past_it_and_has_not_told_of_it() -> None:
    async def main() -> None:
        views = Views()
        views.reported_up_to("3")
        views.latest.assume(thing("5"))
        await asyncio.sleep(1000)
        views.reported_up_to("4")
        assert views.version == "5"
        views.reported_up_to("")  # it lists again
        assert views.version == "5"
        views.reported_up_to("6")
        assert views.version == ""

    run_virtual(main())


def test_what_a_restored_history_lacks_is_dropped() -> None:
    """etcd goes back behind a change, a creation and a deletion of this program."""

    async def main() -> None:
        server = FakeApiServer()
        reflector: Reflector[Raw] = Reflector(server.client(timeout=10), PODS)
        latest = AssumeCache(reflector)
        changes: list[str] = []
        reflector.subscribe(lambda change: changes.append(f"{change.type} {change.key.name}"))
        changed, created, deleted, stays = (Key("default", name) for name in "abcd")
        for key in (changed, deleted, stays):
            server.seed(PODS, {"metadata": {"name": key.name, "namespace": "default"}})
        running = asyncio.ensure_future(reflector.run())
        await reflector.wait_for_sync()
        snapshot = server.storage.snapshot()
        server.change(PODS, "d", "default", lambda raw: raw["metadata"].update(labels={"n": "1"}))
        await until(lambda: "MODIFIED d" in changes)
        server.mute_watches()
        raised = {"labels": {"v": "new"}}
        server.change(PODS, "a", "default", lambda raw: raw["metadata"].update(raised))
        for key in (changed, created):
            obj = {"metadata": {"name": key.name, "namespace": "default"}}
            stored = server.stored(PODS, *reversed(key)) or server.seed(PODS, obj)
            latest.assume(stored)
        server.remove(PODS, "c", "default")
        gone = latest.get(deleted)
        assert gone is not None
        latest.forget(gone)
        server.restore(snapshot)

        await until(lambda: reflector.relists, seconds=600)
        assert reflector.restarts["restored"] == 1
        assert [latest.get(key) for key in (changed, created, deleted, stays)] == [
            server.stored(PODS, *reversed(key)) for key in (changed, created, deleted, stays)
        ]
        assert "DELETED b" in changes
        running.cancel()

    run_virtual(main())


def test_what_a_list_of_a_later_version_lacks_is_dropped() -> None:
    """etcd was restored, and the versions of the snapshot were raised, as etcdutl can do."""

    async def main() -> None:
        views = Views()
        views.watched("1")
        views.latest.assume(thing("5"))
        views.listed("4")
        assert views.version == "5"
        views.listed("1000")
        assert views.version == "1"

    run_virtual(main())


def test_whoever_follows_hears_of_each_name_that_may_say_something_else() -> None:
    async def main() -> None:
        views = Views()
        heard: list[Key] = []
        views.latest.subscribe(heard.append)
        changes: list[Callable[[], None]] = [
            lambda: views.watched("1"),
            lambda: views.latest.assume(thing("2")),
            lambda: views.latest.forget(thing("2")),
            views.gone,
            lambda: views.latest.assume(thing("5")),
        ]
        for change in changes:
            change()
            assert heard == [KEY]
            heard.clear()
        views.latest.forget(thing("5", uid="another"))
        views.latest.assume(thing("4"))
        assert not heard, "nothing has changed"
        views.reported_up_to("5")
        views.latest.expire()
        assert heard == [KEY]
        assert views.version == ""

    run_virtual(main())


def test_an_index_finds_objects_as_they_are_shown() -> None:
    async def main() -> None:
        views = Views()
        views.latest.add_index("version", lambda raw: [raw["metadata"]["resourceVersion"]])
        views.watched("1")
        assert views.latest.by_index("version", "1") == [thing("1")]
        views.latest.assume(thing("2"))
        assert views.latest.by_index("version", "1") == []
        assert views.latest.by_index("version", "2") == [thing("2")]
        views.watched("2")
        assert views.latest.by_index("version", "2") == [thing("2")]

    run_virtual(main())


def test_an_object_that_a_list_skips_is_reported_as_deleted() -> None:
    """It was created and deleted while the watch was silent, and the history is gone, too."""

    async def main() -> None:
        server = FakeApiServer()
        reflector: Reflector[Raw] = Reflector(server.client(timeout=10), PODS)
        latest = AssumeCache(reflector)
        changes: list[str] = []
        reflector.subscribe(lambda change: changes.append(f"{change.type} {change.key.name}"))
        running = asyncio.ensure_future(reflector.run())
        await reflector.wait_for_sync()
        server.mute_watches()
        latest.assume(server.seed(PODS, {"metadata": {"name": "a", "namespace": "default"}}))
        server.remove(PODS, "a", "default")
        server.expire_watches()
        await until(lambda: changes, seconds=600)
        assert changes == ["DELETED a"]
        assert latest.get(Key("default", "a")) is None
        running.cancel()

    run_virtual(main())
