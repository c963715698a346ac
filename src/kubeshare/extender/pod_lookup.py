"""Finds the pod that a call is about.

Whatever is written rests on objects of the API server.
"""

import msgspec

from kubeshare.api import pod_state
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Pod
from kubeshare.extender.reservation import UnknownPodError
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS, Raw


class PodLookup:
    """Finds pods.

    Args:
        client: the API server.
        cluster_state: the pods as the watch delivers them.
    """

    def __init__(self, client: Client, cluster_state: ClusterState) -> None:
        self._client = client
        self._cluster_state = cluster_state

    async def find(self, key: Key, uid: str) -> Raw:
        """A pod from the watch, or else by a live read.

        kube-scheduler may have seen that a gate was removed before the watch here delivers it.

        Raises:
            UnknownPodError: there is no pod of that name and uid.
            ApiError: the API server does not answer.
        """
        known = self._cluster_state.pod(key)
        if known is not None and known.metadata.uid == uid and not known.gated:
            raw: Raw = msgspec.to_builtins(known)
            return raw
        return await self.read(key, uid)

    async def read(self, key: Key, uid: str) -> Raw:
        """A pod as a live read returns it.

        Raises:
            UnknownPodError: there is no pod of that name and uid.
            ApiError: the API server does not answer.
        """
        try:
            live = await self._client.get(PODS, key.name, key.namespace)
        except NotFoundError:
            raise UnknownPodError(f'pods "{key.name}" not found') from None
        found = live["metadata"]["uid"]
        if found != uid:
            raise UnknownPodError(
                f"The pod {key.name} in ns {key.namespace}'s uid is {found}, "
                f"and it's not equal with expected {uid}"
            )
        return live

    async def live(self, key: Key, uid: str) -> Pod | None:
        """The pod as a live read returns it; None if it is gone."""
        try:
            return pod_state.view(await self.read(key, uid))
        except UnknownPodError:
            return None
