"""Queues pods whose start a kubelet has refused, upon its events.

An event is a hint and proves nothing: who may write events in a namespace can forge them for its
pods. So of each only the pod's name and uid are read, no event is kept, and what follows is bounded
by the controllers. Only events from now on are read: for a pod that was refused before, the
timer of :mod:`.sharepod.start_retry` is running.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from msgspec import Struct

from kubeshare.kube.cache.store import DELETED
from kubeshare.kube.cache.watch import BOOKMARK, WatchEvent
from kubeshare.kube.cache.watch_loop import WatchLoop
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.meta import Key, ObjectMeta
from kubeshare.kube.resources import EVENTS

SELECTED: Final = "reason=FailedPrepareDynamicResources,regarding.kind=Pod"
"""What a kubelet reports if a claim of a pod cannot be prepared."""

Concerns: TypeAlias = Callable[[Key, str], bool]
"""Whether a controller looks at a pod (namespace and name, uid) that may have been refused."""


class Regarding(Struct, frozen=True, gc=False):
    """The object that an event is about."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class RefusalEvent(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an event that are read."""

    metadata: ObjectMeta
    regarding: Regarding = Regarding()


class RefusedStarts:
    """Watches the events and queues the pods.

    Args:
        client: of the API server.
    """

    def __init__(self, client: Client) -> None:
        self._fed: list[tuple[WorkQueue[Key], Concerns]] = []

        def latest() -> Awaitable[str]:
            # Without the selector, by which the API server would search all events.
            return client.latest_version(EVENTS)

        self._loop = WatchLoop(
            client,
            EVENTS.into(RefusalEvent),
            latest,
            self._on_event,
            fields=SELECTED,
            latest=latest,
        )

    def register(self, program: Program) -> None:
        """Watch while the program leads."""
        program.add_task(self._loop.run, leading=True)

    def feed(self, queue: WorkQueue[Key], concerns: Concerns) -> None:
        """Queue the refused pods that concern a controller."""
        self._fed.append((queue, concerns))

    def _on_event(self, event: WatchEvent[RefusalEvent]) -> None:
        if event.object is None or event.type in (DELETED, BOOKMARK):
            return
        pod = event.object.regarding
        key = Key(pod.namespace, pod.name)
        for queue, concerns in self._fed:
            if concerns(key, pod.uid):
                queue.add(key)
