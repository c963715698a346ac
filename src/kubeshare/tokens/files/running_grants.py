"""Finds the grants that an earlier daemon left running.

A daemon that ends leaves the pages as they are, and the processes of active grants go on. So a
page says of a grant whether it runs, and what it may use; no container can write there. Its
successor may know less than the daemon that activated a grant: after a rollback it may not be able
to read the grant, or take it for one that does not fit. It runs nevertheless.
"""

from typing import NamedTuple

from kubeshare.tokens.files.grants import Grant, GrantedShare
from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.wire.page import PageShare, read_page
from kubeshare.tokens.wire.protocol import GrantState


class RunningGrant(NamedTuple):
    """A grant that an earlier daemon has activated, and not ended.

    Attributes:
        shares: what its page gives; None where the page cannot be read.
    """

    shares: tuple[PageShare, ...] | None

    def may_use(self, uuid: str) -> bool:
        """Whether it may use a GPU: any, where its page cannot be read."""
        return self.shares is None or any(share.uuid == uuid for share in self.shares)

    def covers(self, grant: Grant) -> bool:
        """Whether a grant asks for the same GPUs, and for no more of them than its page gives."""
        if self.shares is None or len(self.shares) != len(grant.gpus):
            return False
        return all(map(_covers, self.shares, grant.gpus))


def _covers(share: PageShare, gpu: GrantedShare) -> bool:
    # Where the page does not say what is reserved, only a limit that is reserved whole is certain.
    reserved = share.memory_reserved_bytes or (0 if gpu.memory_limit_bytes else gpu.memory_bytes)
    return (
        gpu.uuid == share.uuid
        and gpu.request_micros <= share.request_micros
        and gpu.memory_bytes <= reserved
        and gpu.most_memory_bytes <= share.memory_limit_bytes
    )


def find_running(paths: Paths, claim: str) -> RunningGrant | None:
    """What an earlier daemon left running by the grant of a claim; None if nothing."""
    try:
        page = read_page(paths.claim(claim) / "page")
    except (GrantError, FileNotFoundError, NotADirectoryError):
        return None  # no claim has such a name, or it has never been granted anything
    except (OSError, ValueError):
        return RunningGrant(None)
    if page is None or page.state is not GrantState.ACTIVE:
        return None
    return RunningGrant(page.shares)
