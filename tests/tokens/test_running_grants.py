"""What an earlier daemon left running goes on, and its GPUs are not given out twice."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens import session
from kubeshare.tokens.files import tallies
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    refused_by_older_daemon,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.running_grants import RunningGrant, find_running
from kubeshare.tokens.files.statuses import Status, read_status, wait_status
from kubeshare.tokens.wire.protocol import (
    PAGE_CELL,
    PAGE_HEADER,
    PAGE_MAGIC,
    RESERVED_OFFSET,
    VERSION,
    GrantState,
)
from tokens.helpers import GI, GPU_A, GPU_B, Client, Page, RunningDaemon, grant, lease_of

FailIn = Callable[[str], contextlib.AbstractContextManager[None]]


def run(paths: Paths, *grants: Grant) -> list[Page]:
    """Grants that a daemon activated, which has ended; their pages."""
    with RunningDaemon(paths) as daemon:
        for each in grants:
            assert daemon.grant(each).state == "ACTIVE"
    return [Page(paths.claim(each.claim) / "page") for each in grants]


def make_unreadable(paths: Paths, claim: str) -> None:
    """Let a grant be of a version that comes after this release."""
    later = {"version": GRANT_VERSION + 1, "claim": claim, "gpus": []}
    paths.grant(claim).write_bytes(msgspec.json.encode(later))


def with_memory(asked: Grant, **amounts: int) -> Grant:
    shares = tuple(msgspec.structs.replace(share, **amounts) for share in asked.gpus)
    return msgspec.structs.replace(asked, gpus=shares)


def status(paths: Paths, claim: str) -> Status:
    found = read_status(paths, claim)
    assert found is not None
    return found


def is_active(paths: Paths, claim: str) -> bool:
    """There is no status between two grants of one claim."""
    found = read_status(paths, claim)
    return found is not None and found.state == "ACTIVE"


def test_a_gpu_in_use_by_a_grant_that_cannot_be_read_is_given_to_no_other(paths: Paths) -> None:
    [page] = run(paths, grant("later", 0.6))
    make_unreadable(paths, "later")
    with RunningDaemon(paths) as daemon:
        assert page.grant_state is GrantState.ACTIVE, "it runs on"
        assert "version 3 is not known" in status(paths, "later").reason
        refused = daemon.grant(grant("a", 0.1))
        assert refused.state == "REFUSED"
        assert refused.reason == (
            f"{GPU_A} may be in use by grant later, which an earlier token daemon activated and "
            "this one cannot read: end its pod or command, or run the release of that daemon again"
        )
        assert not refused_by_older_daemon(refused.reason), "a later daemon reads this one too"
        assert daemon.grant(grant("b", 1, gpus=(GPU_B,))).state == "ACTIVE", "of another GPU"

        remove_grant(paths, "later")
        eventually(lambda: is_active(paths, "a"), "there is room once it has ended")


def test_it_takes_its_share_again_where_it_can_be_read_again(paths: Paths) -> None:
    run(paths, grant("later", 0.6))
    make_unreadable(paths, "later")
    with RunningDaemon(paths) as daemon:
        assert daemon.grant(grant("a", 0.4)).state == "REFUSED"
        write_grant(paths, grant("later", 0.6))
        eventually(lambda: is_active(paths, "later"), "it is counted")
        eventually(lambda: is_active(paths, "a"), "what is left is given")
        assert daemon.grant(grant("b", 0.1)).state == "REFUSED"
        Client(paths, "later").open()


def test_those_that_run_beside_it_go_on_and_ask_for_no_more(paths: Paths) -> None:
    pages = run(paths, grant("later", 0.5), grant("a", 0.3))
    make_unreadable(paths, "later")
    with RunningDaemon(paths) as daemon:
        assert status(paths, "a").state == "ACTIVE"
        assert [page.grant_state for page in pages] == [GrantState.ACTIVE] * 2
        Client(paths, "a").open()
        write_grant(paths, grant("a", 0.4))
        eventually(lambda: "grant later" in status(paths, "a").reason, "more is refused")
        assert daemon.view("a")["requestMicros"] == 300_000
        write_grant(paths, grant("a", 0.2))
        eventually(lambda: daemon.view("a")["requestMicros"] == 200_000, "less is not")


@pytest.mark.parametrize(
    ("before", "fences"),
    [
        (b"", False),
        (b"\0" * 128, False),
        (PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 64, 0, GrantState.REFUSED, 64), False),
        (PAGE_HEADER.pack(PAGE_MAGIC, VERSION + 1, 64, 0, GrantState.ACTIVE, 64), True),
        (PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 128, 1, GrantState.ACTIVE, 128), True),
        (b"?", True),
    ],
    ids=["empty", "never written", "refused", "another layout", "cut off", "broken"],
)
def test_without_its_page_it_may_use_any_gpu_unless_nothing_was_ever_active(
    paths: Paths, before: bytes, *, fences: bool
) -> None:
    paths.make()
    make_unreadable(paths, "later")
    paths.claim("later").mkdir()
    (paths.claim("later") / "page").write_bytes(before)
    with RunningDaemon(paths) as daemon:
        states = [daemon.grant(grant(uuid[-1], 0.1, gpus=(uuid,))).state for uuid in (GPU_A, GPU_B)]
    assert states == ["REFUSED" if fences else "ACTIVE"] * 2


def test_a_page_that_cannot_be_opened_may_be_of_any_gpu(paths: Paths) -> None:
    paths.make()
    paths.claim("later").mkdir()
    (paths.claim("later") / "page").mkdir()
    running = find_running(paths, "later")
    assert running is not None
    assert running.may_use(GPU_A)
    assert not running.covers(grant("later"))
    assert find_running(paths, "never granted") is None


def test_no_daemon_waits_for_a_lease_of_a_page_that_a_container_holds(paths: Paths) -> None:
    paths.make()
    paths.claim("a").mkdir()
    page = paths.claim("a") / "page"
    page.write_bytes(b"\0" * 128)
    assert find_running(paths, "a") is None
    with lease_of(page) as holder:
        assert find_running(paths, "a") == RunningGrant(None)
        assert holder.poll() is None, "else nobody would have had to wait"


def test_grants_that_run_go_on_where_less_memory_may_be_granted_than_before(paths: Paths) -> None:
    """As after the way back to a release that oversubscribes no memory."""
    before = [with_memory(grant(name, memory=12 * GI), memory_total_bytes=32 * GI) for name in "ab"]
    pages = run(paths, *before)
    for name in "ab":
        write_grant(paths, grant(name, memory=12 * GI))  # of 16 GiB
    with RunningDaemon(paths) as daemon:
        assert [status(paths, name).state for name in "ab"] == ["ACTIVE"] * 2
        assert [page.grant_state for page in pages] == [GrantState.ACTIVE] * 2
        for name in "ab":
            Client(paths, name).open()
        refused = daemon.grant(grant("c", 0.1))
        assert refused.state == "REFUSED"
        assert f"{GPU_A} has 0 of its memory left" in refused.reason


def test_a_live_grant_keeps_what_it_has_where_less_memory_may_be_granted(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        for name in "ab":
            daemon.grant(with_memory(grant(name, memory=12 * GI), memory_total_bytes=32 * GI))
        for name in "ab":
            write_grant(paths, grant(name, memory=12 * GI, quota_ns=20_000_000))
            page = Page(paths.claim(name) / "page")
            eventually(lambda page=page: page.cell()[4] == 16 * GI, "the page has it")  # type: ignore[misc]
        assert [status(paths, name).reason for name in "ab"] == ["", ""]


def test_what_asks_for_more_than_before_comes_after_what_runs(paths: Paths) -> None:
    """It was changed while no daemon ran; the grants that run are never beyond the GPU."""
    run(paths, grant("a", 0.5), grant("b", 0.5))
    write_grant(paths, grant("a", 0.9))
    os.utime(paths.grant("a"), ns=(0, 0))  # the oldest, which is read first
    with RunningDaemon(paths):
        assert status(paths, "b").state == "ACTIVE"
        refused = status(paths, "a")
        assert (refused.state, "has 0.5 of its time left" in refused.reason) == ("REFUSED", True)


@pytest.fixture
def daemon_fails_in(monkeypatch: pytest.MonkeyPatch) -> FailIn:
    """Lets a step of making the session of grant ``a`` fail, until the block ends."""

    @contextlib.contextmanager
    def fail(step: str) -> Iterator[None]:
        def refuse(path: Path, asked: object) -> object:
            if "a" in {path.name, path.parent.name}:
                raise OSError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
            return make(path, asked)

        make = getattr(session, step)
        with monkeypatch.context() as patched:
            patched.setattr(session, step, refuse)
            yield

    return fail


def test_a_grant_that_runs_without_a_session_is_counted(
    paths: Paths, daemon_fails_in: FailIn
) -> None:
    """Its files cannot be opened for a while, as where a container has a lease of one."""
    [page] = run(paths, grant("a", 0.6))
    with daemon_fails_in("PageWriter"), RunningDaemon(paths) as daemon:
        assert "its files cannot be made" in status(paths, "a").reason
        assert page.grant_state is GrantState.ACTIVE
        assert daemon.grant(grant("b", 0.5)).state == "REFUSED"
        assert daemon.grant(grant("c", 0.4)).state == "ACTIVE"
    with RunningDaemon(paths):
        assert wait_status(paths, "a", DEADLINE_S).state == "ACTIVE"


def gaps(paths: Paths, claim: str) -> int:
    return tallies.read(paths.tally(claim))[0].gaps


def test_a_gap_is_noted_of_a_grant_whose_session_is_made_later(
    paths: Paths, daemon_fails_in: FailIn
) -> None:
    run(paths, grant("a", 0.3))
    with contextlib.ExitStack() as failing:
        failing.enter_context(daemon_fails_in("PageWriter"))
        with RunningDaemon(paths) as daemon:
            assert "its files cannot be made" in status(paths, "a").reason
            failing.close()
            daemon.grant(grant("b", 0.3))  # the next scan
            eventually(lambda: is_active(paths, "a"), "it is made after all")
            assert [gaps(paths, claim) for claim in "ab"] == [1, 0]


def test_a_gap_is_noted_of_a_grant_that_is_read_later(paths: Paths) -> None:
    run(paths, grant("later", 0.3))
    make_unreadable(paths, "later")
    with RunningDaemon(paths) as daemon:
        write_grant(paths, grant("later", 0.3))
        eventually(lambda: is_active(paths, "later"), "it is read")
        assert gaps(paths, "later") == 1
        write_grant(paths, grant("later", 0.3, gpus=(GPU_B,)))
        eventually(lambda: daemon.view("later")["gpu"] == GPU_B, "it begins anew")
        assert gaps(paths, "later") == 0, "this daemon had counted it"


def test_a_page_is_not_raised_before_that_is_decided(paths: Paths, daemon_fails_in: FailIn) -> None:
    """A daemon that ends between the two leaves what the next one takes for what runs."""
    [page, _] = run(paths, grant("a", 0.5), grant("b", 0.5))
    write_grant(paths, grant("a", 0.9, memory=2 * GI))
    before = page.cell()
    with daemon_fails_in("Tallies"), RunningDaemon(paths):
        assert "its files cannot be made" in status(paths, "a").reason
        assert page.grant_state is GrantState.ACTIVE
        assert page.cell()[3:7] == before[3:7]
    with RunningDaemon(paths):
        refused = status(paths, "a")
        assert (refused.state, "has 0.5 of its time left" in refused.reason) == ("REFUSED", True)
        assert status(paths, "b").state == "ACTIVE"
        remove_grant(paths, "b")
        eventually(lambda: is_active(paths, "a"), "there is room")
        assert page.cell()[3] == 2 * GI
        assert page.cell()[5] == 900_000


def test_what_ran_on_another_gpu_is_no_more_active_before_that_is_decided(
    paths: Paths, daemon_fails_in: FailIn
) -> None:
    [page] = run(paths, grant("a"))
    write_grant(paths, grant("a", gpus=(GPU_B,)))
    with daemon_fails_in("Tallies"), RunningDaemon(paths):
        assert page.grant_state is GrantState.PENDING
    with RunningDaemon(paths):
        assert status(paths, "a").state == "ACTIVE"


def test_a_larger_reservation_under_the_same_limit_comes_after_what_runs(paths: Paths) -> None:
    elastic = with_memory(grant("a", memory=4 * GI), memory_limit_bytes=16 * GI)
    run(paths, elastic, grant("b", memory=12 * GI))
    write_grant(paths, with_memory(elastic, memory_bytes=8 * GI))
    with RunningDaemon(paths) as daemon:
        refused = status(paths, "a")
        assert (refused.state, "has 4Gi of its memory left" in refused.reason) == ("REFUSED", True)
        write_grant(paths, elastic)
        eventually(lambda: is_active(paths, "a"), "what it had fits")
        assert daemon.view("b")["state"] == "idle"


def test_reservations_that_ran_go_on_where_less_memory_may_be_granted(paths: Paths) -> None:
    oversubscribed = {"memory_total_bytes": 32 * GI, "physical_memory_bytes": 16 * GI}
    before = [with_memory(grant(name, memory=12 * GI), **oversubscribed) for name in "ab"]
    run(paths, *(with_memory(each, memory_limit_bytes=14 * GI) for each in before))
    for name in "ab":
        write_grant(paths, with_memory(grant(name, memory=12 * GI), memory_limit_bytes=14 * GI))
    with RunningDaemon(paths):
        assert [status(paths, name).state for name in "ab"] == ["ACTIVE"] * 2


def test_what_a_page_without_its_reservation_had_is_certain_without_a_limit(paths: Paths) -> None:
    """It was written by a daemon that did not say what it reserved."""
    whole = grant("a", memory=4 * GI)
    elastic = with_memory(grant("a", memory=2 * GI), memory_limit_bytes=4 * GI)
    run(paths, whole)
    file = paths.claim("a") / "page"
    with file.open("r+b") as opened:
        opened.seek(PAGE_HEADER.size + PAGE_CELL.size + RESERVED_OFFSET)
        opened.write(bytes(8))
    running = find_running(paths, "a")
    assert running is not None
    assert running.covers(whole)
    assert not running.covers(elastic)
