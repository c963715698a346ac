"""Grant files become sessions and statuses."""

import errno
import os

import msgspec
import pytest

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens import daemon as daemon_module
from kubeshare.tokens.files import statuses
from kubeshare.tokens.files.grants import remove_grant, write_grant
from kubeshare.tokens.files.statuses import read_status, wait_status
from kubeshare.tokens.wire.protocol import PAGE_MAGIC, GateState, GrantState, MessageType
from tokens.helpers import (
    GI,
    GPU_A,
    GPU_B,
    Client,
    Page,
    RunningDaemon,
    grant,
)


def test_a_grant_becomes_a_folder_that_a_container_can_use(daemon: RunningDaemon) -> None:
    status = daemon.grant(grant("a", 0.3, 0.6))

    folder = daemon.paths.claim("a")
    page = Page(folder / "page")
    assert status.state == "ACTIVE"
    assert page.header[:4] == (PAGE_MAGIC, 1, 128, 1)
    assert page.grant_state is GrantState.ACTIVE
    assert page.cell()[1:7] == (GateState.CLOSED, 0, GI, 16 * GI, 300_000, 600_000)
    assert (folder.stat().st_mode & 0o777, (folder / "page").stat().st_mode & 0o777) == (
        0o755,
        0o644,
    )
    assert (folder / "socket").stat().st_mode & 0o777 == 0o666
    assert daemon.paths.counters("a").stat().st_mode & 0o777 == 0o666


def test_a_memory_limit_above_what_is_reserved_binds_and_takes_no_room(
    daemon: RunningDaemon,
) -> None:
    asked = grant("a", 0.3, memory=10 * GI)
    (share,) = asked.gpus
    lifted = msgspec.structs.replace(share, memory_limit_bytes=16 * GI)
    daemon.grant(msgspec.structs.replace(asked, gpus=(lifted,)))

    assert Page(daemon.paths.claim("a") / "page").cell()[3] == 16 * GI
    view = daemon.view("a")
    assert (view["memoryBytes"], view["memoryLimitBytes"]) == (10 * GI, 16 * GI)
    assert daemon.grant(grant("b", 0.3, memory=6 * GI)).state == "ACTIVE"


def test_removing_the_grant_ends_it(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a")
    client.open()

    remove_grant(daemon.paths, "a")

    eventually(lambda: client.page.grant_state is GrantState.REVOKED, "the page says so")
    assert client.page.gate is GateState.CLOSED
    eventually(lambda: client.is_dropped, "the connection is closed")
    eventually(lambda: not daemon.paths.claim("a").exists(), "the folder is gone")
    eventually(lambda: read_status(daemon.paths, "a") is None, "the status is gone")


def test_what_does_not_fit_is_refused_with_who_holds_how_much(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))

    status = daemon.grant(grant("b", 0.5))

    assert status.state == "REFUSED"
    assert status.reason == (
        f"{GPU_A} has 0.4 of its time left, 0.5 is requested; held by a: 0.6, 1Gi"
    )
    assert Page(daemon.paths.claim("b") / "page").grant_state is GrantState.REFUSED


def test_memory_that_does_not_fit_is_refused(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", memory=10 * GI))

    status = daemon.grant(grant("b", memory=7 * GI))

    assert status.state == "REFUSED"
    assert "has 6Gi of its memory left, 7Gi is asked; held by a: 0.3, 10Gi" in status.reason


def test_exact_fits_fit(daemon: RunningDaemon) -> None:
    states = [
        daemon.grant(grant(str(index), part)).state
        for index, part in enumerate([0.1, 0.1, 0.1, 0.3, 0.3, 0.1])
    ]

    assert states == ["ACTIVE"] * 6


def test_a_refused_grant_is_activated_when_room_comes(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))
    daemon.grant(grant("b", 0.5))

    remove_grant(daemon.paths, "a")

    def is_active() -> bool:
        status = read_status(daemon.paths, "b")
        return status is not None and status.state == "ACTIVE"

    eventually(is_active, "the other grant is active")
    Client(daemon.paths, "b").open()


def test_a_process_of_a_refused_claim_is_turned_away(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))
    daemon.grant(grant("b", 0.5))

    client = Client(daemon.paths, "b", hello=False)

    assert client.receive().type is MessageType.REFUSED


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "truncated"),
        ('{"version": 3, "claim": "x", "gpus": []}', "version 3"),
        ('{"version": 2, "claim": "y", "gpus": []}', "gpus is empty"),
        ('{"version": 2, "claim": "x", "gpus": [], "colour": "red"}', "colour"),
        ('{"version": 1, "claim": "x", "gpus": [5]}', "Expected `object`"),
        ('{"version": 1, "claim": ' + "[" * 60_000, "recursion"),
        ("[" * 100_000, "bytes"),
    ],
)
def test_a_grant_file_that_is_none_is_refused_and_harms_nobody(
    daemon: RunningDaemon, text: str, says: str
) -> None:
    temporary = daemon.paths.root / "x.json"
    temporary.write_text(text)
    temporary.rename(daemon.paths.grants / "x.json")

    status = wait_status(daemon.paths, "x", DEADLINE_S)

    assert status.state == "REFUSED"
    assert says in status.reason
    assert daemon.grant(grant("a")).state == "ACTIVE"


def test_other_limits_in_a_grant_file_change_a_live_claim_in_place(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.3, 0.6))
    client = Client(daemon.paths, "a")
    client.open()
    epoch, inode = client.page.epoch, client.page.inode

    write_grant(daemon.paths, grant("a", 0.5, 0.9, memory=2 * GI))

    eventually(lambda: client.page.cell()[5:7] == (500_000, 900_000), "the page has the new ones")
    assert client.page.cell()[3] == 2 * GI
    assert Page(daemon.paths.claim("a") / "page").inode == inode
    assert (client.page.epoch, client.page.gate) == (epoch, GateState.OPEN)
    assert not client.is_dropped
    assert daemon.view("a")["requestMicros"] == 500_000


def test_a_change_that_does_not_fit_leaves_the_claim_as_it_was(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.3))
    daemon.grant(grant("b", 0.6))
    client = Client(daemon.paths, "a")

    write_grant(daemon.paths, grant("a", 0.5))

    def answer() -> str:
        status = read_status(daemon.paths, "a")
        assert status is not None
        assert status.state == "ACTIVE"
        return status.reason

    eventually(answer, "the status has a reason")
    assert answer() == (
        f"the grant stays as it was: {GPU_A} has 0.4 of its time left, 0.5 is requested; "
        "held by b: 0.6, 1Gi"
    )
    assert client.page.cell()[5] == 300_000
    client.open()

    remove_grant(daemon.paths, "b")
    # The daemon changes the page first: whoever reads the new status finds the new limits.
    eventually(lambda: answer() == "", "it is changed when there is room")
    assert client.page.cell()[5] == 500_000


def test_a_change_that_cannot_be_read_leaves_the_claim_as_it_was(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a")
    broken = daemon.paths.root / "a.json"
    broken.write_text("{")
    broken.rename(daemon.paths.grant("a"))

    daemon.grant(grant("b"))

    assert client.page.grant_state is GrantState.ACTIVE
    client.open()


def test_room_that_a_change_makes_is_given_to_who_waits_for_it(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))
    daemon.grant(grant("b", 0.5))

    write_grant(daemon.paths, grant("a", 0.5))

    def is_active() -> bool:
        status = read_status(daemon.paths, "b")
        return status is not None and status.state == "ACTIVE"

    eventually(is_active, "the other grant is active")


def test_a_grant_that_names_another_gpu_begins_anew(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a")

    write_grant(daemon.paths, grant("a", gpus=(GPU_B,)))

    eventually(lambda: client.page.grant_state is GrantState.REVOKED, "the old page says so")
    eventually(lambda: daemon.paths.claim("a").exists(), "there is a new one")
    eventually(lambda: daemon.view("a")["gpu"] == GPU_B, "on the other GPU")


def test_a_postponed_change_ends_with_its_grant(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.3))
    daemon.grant(grant("b", 0.6))
    write_grant(daemon.paths, grant("a", 0.5))

    def is_postponed() -> bool:
        status = read_status(daemon.paths, "a")
        return status is not None and bool(status.reason)

    eventually(is_postponed, "the change waits for room")
    remove_grant(daemon.paths, "a")
    eventually(lambda: read_status(daemon.paths, "a") is None, "the grant has ended")
    daemon.grant(grant("c", 0.4))
    assert daemon.grant(grant("a", 0.3)).state == "REFUSED"
    page = Page(daemon.paths.claim("a") / "page")

    daemon.grant(grant("d", 0.3))

    assert page.grant_state is GrantState.REFUSED, "another one's grant did not end this one"


def test_the_files_of_a_grant_have_their_memory_before_anybody_writes_them(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated: dict[int, tuple[int, int]] = {}
    real = os.posix_fallocate

    def allocate(file: int, offset: int, size: int) -> None:
        blocks_before = os.fstat(file).st_blocks
        real(file, offset, size)
        allocated[os.fstat(file).st_ino] = (blocks_before, offset + size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    daemon.grant(grant("a"))
    made = [daemon.paths.claim("a") / "page", daemon.paths.counters("a"), daemon.paths.tally("a")]
    for path in made:
        found = path.stat()
        assert allocated.get(found.st_ino) == (0, found.st_size), path
        assert found.st_blocks * 512 >= found.st_size > 0, path


def test_a_grant_without_files_is_made_when_there_is_room_again(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "RETRY_SECONDS", 0.05)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        assert daemon.grant(grant("a")).state == "REFUSED"

    def state() -> str:
        status = read_status(daemon.paths, "a")
        return status.state if status else ""

    eventually(lambda: state() == "ACTIVE", "no other grant changes meanwhile")


def test_a_full_run_folder_refuses_new_grants_and_ends_no_other(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.grant(grant("a"))
    refused: list[object] = []

    def refuse(*arguments: object) -> None:
        refused.append(arguments[0])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        status = daemon.grant(grant("b"))
        assert (status.state, "No space left on device" in status.reason) == ("REFUSED", True)
        remove_grant(daemon.paths, "b")
        eventually(lambda: read_status(daemon.paths, "b") is None, "no old answer to a new grant")
        assert not daemon.paths.counters("b").exists()
        assert daemon.grant(grant("e", 0.1)).state == "REFUSED"
    assert daemon.grant(grant("f", 0.1)).state == "ACTIVE"
    assert wait_status(daemon.paths, "e", DEADLINE_S).state == "ACTIVE", "there is room again"

    with monkeypatch.context() as patched:
        patched.setattr(statuses, "write_whole", refuse)
        write_grant(daemon.paths, grant("c", 0.1))
        eventually(lambda: daemon.paths.status("c") in refused, "the daemon could not answer")
    assert Page(daemon.paths.claim("a") / "page").grant_state is GrantState.ACTIVE
    assert daemon.grant(grant("d", 0.1)).state == "ACTIVE"
