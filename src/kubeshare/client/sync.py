"""A cluster with KubeShare, for code without asyncio."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kubeshare.client.cluster import Cluster, NoRoom, Until
from kubeshare.client.sharepod import Change, SharePod, SharePodState

if TYPE_CHECKING:
    from kubeshare.client.usage.accounts import Usage
    from kubeshare.explain.finding import Finding


class SyncCluster:
    """A :class:`~kubeshare.client.cluster.Cluster` whose methods return when they are done.

    It has an event loop of its own: use it in one thread at a time, and not inside another loop.

    Args:
        cluster: does the work.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._runner = asyncio.Runner()

    @classmethod
    def connect(
        cls, kubeconfig: str | Path | None = None, context: str | None = None, namespace: str = ""
    ) -> Self:
        """As :meth:`Cluster.connect`."""
        return cls(Cluster.connect(kubeconfig, context, namespace))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        """The default namespace."""
        return self._cluster.namespace

    def close(self) -> None:
        """Close all connections, and the event loop."""
        try:
            self._runner.run(self._cluster.close())
        finally:
            self._runner.close()

    def create(self, sharepod: SharePod) -> SharePodState:
        """As :meth:`Cluster.create`."""
        return self._runner.run(self._cluster.create(sharepod))

    def get(self, name: str, namespace: str = "") -> SharePodState:
        """As :meth:`Cluster.get`."""
        return self._runner.run(self._cluster.get(name, namespace))

    def list(
        self, namespace: str = "", *, labels: str = "", all_namespaces: bool = False
    ) -> tuple[SharePodState, ...]:
        """As :meth:`Cluster.list`."""
        listing = self._cluster.list(namespace, labels=labels, all_namespaces=all_namespaces)
        return self._runner.run(listing)

    @contextmanager
    def watch(
        self, namespace: str = "", *, labels: str = "", all_namespaces: bool = False
    ) -> Iterator[Iterator[Change]]:
        """As :meth:`Cluster.watch`; a context, so that leaving it ends the watch."""
        found = self._cluster.watch(namespace, labels=labels, all_namespaces=all_namespaces)

        async def following() -> Change:
            return await anext(found)

        def each() -> Iterator[Change]:
            while True:
                yield self._runner.run(following())

        try:
            yield each()
        finally:
            self._runner.run(found.aclose())

    def wait(
        self,
        name: str,
        namespace: str = "",
        *,
        until: Until = "Ready",
        timeout: float | None = None,
        no_room: NoRoom = "wait",
    ) -> SharePodState:
        """As :meth:`Cluster.wait`."""
        waiting = self._cluster.wait(name, namespace, until=until, timeout=timeout, no_room=no_room)
        return self._runner.run(waiting)

    def explain(self, name: str, namespace: str = "", *, policy: str | None = None) -> "Finding":
        """As :meth:`Cluster.explain`."""
        return self._runner.run(self._cluster.explain(name, namespace, policy=policy))

    def usage(
        self,
        since: str = "7d",
        by: Iterable[str] = ("namespace",),
        namespace: str = "",
        *,
        all_namespaces: bool = False,
    ) -> "Usage":
        """As :meth:`Cluster.usage`."""
        found = self._cluster.usage(since, by, namespace, all_namespaces=all_namespaces)
        return self._runner.run(found)

    def delete(self, name: str, namespace: str = "") -> None:
        """As :meth:`Cluster.delete`."""
        self._runner.run(self._cluster.delete(name, namespace))
