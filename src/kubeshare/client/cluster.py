"""A cluster with KubeShare, for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.api.types.v1 import SharePod as View
from kubeshare.client import errors
from kubeshare.client.sharepod import Change, SharePod, SharePodState
from kubeshare.client.watching import Selection, changes
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.clock import utc_now

if TYPE_CHECKING:
    from kubeshare.client.usage.accounts import Usage
    from kubeshare.explain.finding import Finding
    from kubeshare.kube.client.client import Client

VIEWS: Final = SHAREPODS.into(View)
Until: TypeAlias = Literal["Ready", "Succeeded"]
NoRoom: TypeAlias = Literal["wait", "raise"]


class Cluster:
    """Creates, reads, explains and deletes SharePods.

    Every method may raise an :class:`~kubeshare.kube.client.errors.ApiError`: the cluster cannot
    be reached, or refuses. A namespace of ``""`` is that of the configuration.

    Args:
        client: of the API server; :meth:`connect` makes it from a configuration.
        namespace: the default of all methods; ``""`` for that of the client.
    """

    def __init__(self, client: "Client", namespace: str = "") -> None:
        self._client = client
        self.namespace = namespace or client.namespace

    @classmethod
    def connect(
        cls, kubeconfig: str | Path | None = None, context: str | None = None, namespace: str = ""
    ) -> Self:
        """A cluster by its configuration, as for the command ``kubeshare``.

        Args:
            kubeconfig: a file; by default the pod's service account, then ``$KUBECONFIG``, then
                ``~/.kube/config``.
            context: of that file; by default its current one.
            namespace: by default that of the configuration.

        Raises:
            ConfigError: there is no usable configuration.
        """
        from kubeshare.kube.client.client import Client  # noqa: PLC0415 - 150 ms to import

        return cls(Client.connect(kubeconfig, context), namespace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def create(self, sharepod: SharePod) -> SharePodState:
        """Create a SharePod.

        Raises:
            InvalidValueError: a field is not acceptable; nothing was sent.
            AlreadyExistsError: the name is in use.
            InvalidError: the API server refuses a field.
        """
        manifest = sharepod.manifest(self.namespace)
        return SharePodState.of(await self._client.create(VIEWS, manifest, strict=True))

    async def get(self, name: str, namespace: str = "") -> SharePodState:
        """A SharePod as it is now.

        Raises:
            NotFoundError: there is none of that name.
        """
        return SharePodState.of(await self._client.get(VIEWS, name, namespace or self.namespace))

    async def list(
        self, namespace: str = "", *, labels: str = "", all_namespaces: bool = False
    ) -> tuple[SharePodState, ...]:
        """All SharePods of a namespace, or of the cluster, that a label selector selects."""
        where = "" if all_namespaces else namespace or self.namespace
        found = await self._client.list(VIEWS, where, labels=labels)
        return tuple(map(SharePodState.of, found.items))

    async def watch(
        self, namespace: str = "", *, labels: str = "", all_namespaces: bool = False
    ) -> AsyncGenerator[Change]:
        """The SharePods that are there, then each change of them, without end.

        Close it with ``contextlib.aclosing`` when leaving early.

        Raises:
            UnreachableError: the API server was away for a minute.
        """
        where = "" if all_namespaces else namespace or self.namespace
        async with aclosing(changes(self._client, VIEWS, Selection(where, labels))) as found:
            async for kind, view in found:
                yield Change(type=kind, sharepod=SharePodState.of(view))

    async def wait(
        self,
        name: str,
        namespace: str = "",
        *,
        until: Until = "Ready",
        timeout: float | None = None,  # noqa: ASYNC109 - its error says what it waits for
        no_room: NoRoom = "wait",
    ) -> SharePodState:
        """Wait until the pod of a SharePod is ready, or has succeeded.

        Args:
            name: of the SharePod.
            namespace: of it.
            until: ``Ready``, which a pod that has succeeded was; or ``Succeeded``.
            timeout: in seconds; None waits for ever.
            no_room: whether to go on waiting, or to raise, while no GPU fits.

        Raises:
            NotFoundError: there is none of that name.
            UnschedulableError: no GPU could ever fit, or none fits now and ``no_room`` is
                ``raise``.
            FailedError: the pod has failed.
            DeletedError: it was deleted.
            WaitTimeoutError: the time is over.
        """
        where = namespace or self.namespace
        view = await self._client.get(VIEWS, name, where)
        state = SharePodState.of(view)
        selection = Selection(where, fields=f"metadata.name={name}")
        try:
            async with (
                asyncio.timeout(timeout),
                aclosing(changes(self._client, VIEWS, selection, [view])) as found,
            ):
                while not _reached(state, until, no_room):
                    kind, view = await anext(found)
                    if view.metadata.uid != state.uid or kind == "DELETED":
                        raise errors.DeletedError(state, "was deleted")
                    state = SharePodState.of(view)
        except TimeoutError as error:
            words = f"is not {until} after {timeout:g} s"
            raise errors.WaitTimeoutError(state, words) from error
        return state

    async def explain(
        self, name: str, namespace: str = "", *, policy: str | None = None
    ) -> "Finding":
        """Find out where a SharePod or pod is or would go, and why not elsewhere.

        Args:
            name: ``NAME``, ``sharepod/NAME`` or ``pod/NAME``.
            namespace: of it.
            policy: the name of a placement policy; None for the scheduler's.

        Raises:
            NothingToExplainError: there is none, or it asks for no share of a GPU.
            NotInstalledError: the cluster has no KubeShare.
            NotAllowedError: some of the cluster may not be read.
            UnknownPolicyError: there is no such policy here.
        """
        from kubeshare.core.policies import policy as policy_of  # noqa: PLC0415
        from kubeshare.explain.finding import find_out  # noqa: PLC0415 - the core, 100 ms

        given = policy_of(policy) if policy else None
        return await find_out(self._client, given, name, namespace or self.namespace)

    async def usage(
        self,
        since: str = "7d",
        by: Iterable[str] = ("namespace",),
        namespace: str = "",
        *,
        all_namespaces: bool = False,
    ) -> "Usage":
        """Sum who used how much of the GPUs.

        Args:
            since: a period such as ``7d``, or a date or time.
            by: what to sum by: namespace, pod, owner, group, model, node.
            namespace: of the accounts.
            all_namespaces: sum those of all namespaces.

        Raises:
            InvalidValueError: ``since`` or ``by`` is not acceptable.
            AccountsError: there are no accounts, or they may not be read.
        """
        from kubeshare.client.usage import accounts, period  # noqa: PLC0415 - as for explain

        now = utc_now()
        where = "" if all_namespaces else namespace or self.namespace
        try:
            keys, begin = accounts.parse_keys(",".join(by)), period.since(since, now)
        except InvalidValueError as error:
            raise error.under(error.field.removeprefix("--")) from None
        return await accounts.read(self._client, where, keys, begin, now)

    async def delete(self, name: str, namespace: str = "") -> None:
        """Delete a SharePod; its pod ends, and the GPU is free once the node says so.

        Raises:
            NotFoundError: there is none of that name.
        """
        await self._client.delete(VIEWS, name, namespace or self.namespace)


def _reached(state: SharePodState, until: Until, no_room: NoRoom) -> bool:
    """Whether a SharePod is what is waited for.

    Raises:
        WaitError: it will not be.
    """
    if state.phase == "Succeeded" or (until == "Ready" and state.ready):
        return True
    blocker = state.blocker
    reason = blocker.reason if blocker is not None else ""
    if state.phase == "Failed" or reason in errors.REFUSED:
        raise errors.FailedError(state, "has failed")
    if blocker is not None and blocker.type == "Scheduled":
        if reason in errors.HOPELESS:
            raise errors.UnschedulableError(state, "cannot be scheduled")
        if no_room == "raise":
            raise errors.UnschedulableError(state, "is not scheduled")
    return False
