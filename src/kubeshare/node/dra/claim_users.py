"""Checks whether anything on this node still uses a prepared claim.

The kubelet keeps a claim prepared for every pod for which it is reserved, and calls
unprepare when the last of them has ended, not when the pod of the grant has. Its
PodResources API lists the claims of its pods; the kernel shows the containers that have
mounted one.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TypeAlias

import structlog

from kubeshare.node.claim_mounts import ClaimMounts
from kubeshare.node.dra.attachment import claim_of
from kubeshare.node.dra.cdi import claim_device
from kubeshare.node.gpus.pod_resources import PodResourcesError, list_cdi_devices

log = structlog.get_logger(__name__)

ClaimInUse: TypeAlias = Callable[[str], bool]
"""Whether a pod of this node has a claim (uid), or a process has it mounted; blocks."""

UsersOfClaims: TypeAlias = Callable[[], Mapping[str, AbstractSet[str]]]
"""Each claim (uid) that is in use on this node → the uids of the pods with processes that have it
mounted, none for one that only the kubelet has; blocks."""


class ClaimUsers:
    """Finds the users of claims.

    Args:
        socket: of the kubelet's PodResources API.
        mounts: recognizes the claims that processes have mounted.
    """

    def __init__(self, socket: Path, mounts: ClaimMounts) -> None:
        self._socket = socket
        self._mounts = mounts

    def in_use(self, claim: str) -> bool:
        """Whether the kubelet has a pod with a claim, or a process has it mounted; blocks."""
        return claim in self.of_all()

    def of_all(self) -> dict[str, set[str]]:
        """Each claim in use → the uids of the pods with processes that have it mounted; blocks.

        It looks at every process of the machine: who asks about several claims asks once.
        """
        found: dict[str, set[str]] = {}
        for grant, pods in self._mounts.of_all_processes().items():
            found.setdefault(claim_of(grant), set()).update(pods)
        for grant in self._reserved():
            found.setdefault(claim_of(grant), set())
        return found

    def _reserved(self) -> set[str]:
        """The grants whose devices the kubelet has given to a pod."""
        kind = claim_device("")
        try:
            return {
                device.removeprefix(kind)
                for device in list_cdi_devices(self._socket)
                if device.startswith(kind)
            }
        except PodResourcesError as error:
            # A kubelet that does not run starts no container; those that run have the mount.
            log.info("the kubelet does not say which claims it has", reason=str(error))
            return set()
