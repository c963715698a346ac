"""The run folder's own file system, mounted in a namespace that stands for the node's."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deadlines import DEADLINE_S, eventually
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.node import run_mount
from kubeshare.node.run_mount import SIZE_BYTES, HostMounter, Mount, MountError
from kubeshare.tokens.files import folder_lock
from kubeshare.tokens.files.grants import write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status
from tokens.helpers import Client, grant
from tokens.program import start_program

TESTS = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("mounting_agent.py")
BINDS = ("sh", "-c", 'mount --bind "$0" "$0" && exec "$@"')
"""What a container sees that starts after the mount: the file system itself, at the path."""
ATTRIBUTES = 600
"""With 16 inodes for each of 2048 claims, 558 of them would leave nothing for others."""
NEEDS_ROOT = pytest.mark.slow
Act = Callable[..., list[Any]]
Daemon = subprocess.Popen[str]


class FakeMounter:
    """Mounts by putting a folder of another file system at the path."""

    def __init__(self, there: Mount | None, *, fails: bool = False) -> None:
        self.there = there
        self.done: list[str] = []
        self._fails = fails

    def mounted(self, folder: Path) -> Mount | None:
        return self.there

    def mount(self, folder: Path, options: str) -> None:
        self._do("mount", folder)

    def unmount(self, folder: Path) -> None:
        self._do("unmount", folder)

    def _do(self, action: str, folder: Path) -> None:
        assert folder_lock.take_unserved(Paths(folder)) is None, "no daemon can start meanwhile"
        self.done.append(action)
        if self._fails:
            raise MountError("permission denied")


OURS = Mount("/", "kubeshare")


@pytest.mark.parametrize(
    ("there", "fails", "words", "done"),
    [
        (OURS, False, "", []),
        (Mount("/", "tmpfs"), False, "", []),
        (Mount("/else", "/dev/sda1"), False, "/else of /dev/sda1 is mounted at", []),
        (None, True, "permission denied", ["mount"]),
        (None, False, "do not propagate", ["mount", "unmount"]),
    ],
)
def test_it_is_mounted_once(
    folder: Path, there: Mount | None, words: str, done: list[str], *, fails: bool
) -> None:
    mounter = FakeMounter(there, fails=fails)
    assert words in (why := run_mount.provide(folder, mounter))
    assert bool(why) == bool(words)
    assert mounter.done == done


def test_it_is_mounted_over_no_grant_and_no_daemon(folder: Path) -> None:
    paths, mounter = Paths(folder), FakeMounter(None)
    lock = folder_lock.take(paths).descriptor
    assert "a token daemon serves it: it is mounted at the next boot" in run_mount.provide(
        folder, mounter
    )
    os.close(lock)
    paths.grant("a").touch()
    assert "pods have grants in it: it is mounted at the next boot" in run_mount.provide(
        folder, mounter
    )
    assert mounter.done == []


@pytest.mark.parametrize(
    ("there", "fails", "done"),
    [
        (None, False, []),
        (Mount("/", "tmpfs"), False, []),
        (OURS, False, ["unmount"]),
        (OURS, True, ["unmount"]),
    ],
)
def test_only_its_own_is_unmounted(
    folder: Path, there: Mount | None, done: list[str], *, fails: bool
) -> None:
    mounter = FakeMounter(there, fails=fails)
    Paths(folder).make()
    run_mount.take_away(folder, mounter)
    assert mounter.done == done


def test_where_an_agent_was_killed_before_it_unmounted_the_folder_is_served(folder: Path) -> None:
    paths = Paths(folder)
    paths.make()
    paths.unmounted.touch()
    assert run_mount.provide(folder, FakeMounter(OURS)) == ""
    assert not paths.unmounted.exists()


def test_what_cannot_be_unmounted_is_not_left_as_unmounted(folder: Path) -> None:
    paths = Paths(folder)
    paths.make()
    with pytest.raises(MountError, match="unmount: Invalid argument"):
        HostMounter(os.getpid()).unmount(folder)
    assert not paths.unmounted.exists()


@pytest.mark.parametrize("rest", ["", "31", "31 24 0:29 /", "31 24 0:29 / /run/x rw - tmpfs"])
def test_of_a_long_table_the_last_line_may_be_cut_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    table = f"30 24 0:28 / {folder} rw,relatime - tmpfs kubeshare rw\n{rest}"
    monkeypatch.setattr(run_mount, "mountinfo_of", lambda pid: table)
    assert HostMounter().mounted(folder) == OURS


def test_it_stays_mounted_for_grants_and_daemons(folder: Path) -> None:
    paths, mounter = Paths(folder), FakeMounter(OURS)
    lock = folder_lock.take(paths).descriptor
    run_mount.take_away(folder, mounter)
    os.close(lock)
    paths.grant("a").touch()
    run_mount.take_away(folder, mounter)
    assert mounter.done == []


@pytest.fixture
def folder() -> Iterator[Path]:
    """A run folder that does not exist yet, on a file system that stands for the node's /run."""
    with tempfile.TemporaryDirectory(prefix="kubeshare-mount-", dir="/dev/shm") as made:
        yield Path(made) / "run"


@pytest.fixture
def node() -> Iterator[int]:
    """A process in a mount namespace of its own, whose mounts propagate as a node's do."""
    command = ["unshare", "--mount", "--propagation", "shared", "sh", "-c", "echo; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def container(node: int, propagation: str = "slave") -> list[str]:
    """What runs a program in a container of the node."""
    outside = ["nsenter", "--target", str(node), "--mount"]
    return [*outside, "unshare", "--mount", "--propagation", propagation]


@pytest.fixture
def act(node: int, folder: Path) -> Act:
    """Run an agent in a container of the node, where mounts arrive as ``propagation`` says."""

    def run(*actions: str, propagation: str = "slave", within: Sequence[str] = ()) -> list[Any]:
        agent = [sys.executable, str(PROGRAM), str(node), str(folder), *actions]
        done = subprocess.run(
            [*container(node, propagation), *within, *agent],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        # Its log is there too.
        return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in '"n{']

    return run


@pytest.fixture
def seen(node: int, folder: Path) -> Paths:
    """The run folder as the node sees it."""
    return Paths(Path(f"/proc/{node}/root") / folder.relative_to("/"))


@NEEDS_ROOT
def test_the_run_folder_is_a_file_system_of_its_own_that_outlives_agents(
    act: Act, folder: Path, seen: Paths
) -> None:
    provided, first = act("provide", "see")
    assert (provided, first) == ("", {"bytes": SIZE_BYTES, "inodes": 0, "names": []})
    act("grant", within=(*BINDS, str(folder)))
    provided, second = act("provide", "see")
    assert (provided, second["bytes"]) == ("", SIZE_BYTES)
    assert seen.grant("a").exists()
    assert not Paths(folder).grants.exists(), "nothing is on the other file system"


@NEEDS_ROOT
def test_where_mounts_do_not_propagate_all_stays_as_it_was(act: Act, seen: Paths) -> None:
    why, found = act("provide", "see", propagation="private")
    assert "do not propagate" in why
    assert found["bytes"] != SIZE_BYTES
    assert not seen.root.is_mount()


def test_where_the_nodes_namespace_cannot_be_entered_the_reason_is_said(folder: Path) -> None:
    assert "No such file" in run_mount.provide(folder, HostMounter(2**22 + 1))


@NEEDS_ROOT
@pytest.mark.parametrize("within", [(), BINDS])
def test_it_is_unmounted_when_nothing_uses_it_any_more(
    act: Act, folder: Path, seen: Paths, within: tuple[str, ...]
) -> None:
    within = (*within, str(folder)) if within else ()
    act("provide", "grant")
    act("take_away", within=within)
    assert seen.root.is_mount()
    act("revoke", "take_away", within=within)
    assert not seen.root.is_mount()
    seen.make()
    assert act("provide") == [""]


@contextlib.contextmanager
def daemon(folder: Path, node: int, *within: str) -> Iterator[Daemon]:
    """A token daemon in a container of the node, as it is deployed."""
    options = ("--stand-by", "--await-agent")
    log = folder.with_name("log")
    with start_program(
        Paths(folder), *options, stdout=log, before=(*container(node), *within)
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def has_logged(folder: Path, words: str) -> bool:
    return words in folder.with_name("log").read_text()


@NEEDS_ROOT
@pytest.mark.parametrize("starts_first", ["daemon", "agent"])
def test_daemon_and_agent_meet_whoever_starts_first(
    act: Act, folder: Path, node: int, seen: Paths, starts_first: str
) -> None:
    folder.mkdir()
    within: tuple[str, ...] = ()
    if starts_first == "agent":
        assert act("provide") == [""]
        within = (*BINDS, str(folder))
    with daemon(folder, node, *within) as program:
        eventually(lambda: has_logged(folder, "waiting for the node agent"), "it waits")
        assert act("provide", "prepare") == ["", None]
        eventually(seen.control.exists, "it serves what the agent has mounted")
        write_grant(seen, grant("a"))
        assert wait_status(seen, "a", DEADLINE_S).state == "ACTIVE"
        act("take_away")
        assert seen.root.is_mount(), "a daemon serves it"
        assert program.poll() is None
    assert [file.name for file in folder.iterdir()] == ["daemon.lock"], "of who mounted"


@NEEDS_ROOT
def test_a_daemon_that_sees_what_was_unmounted_ends_to_be_started_again(
    act: Act, folder: Path, node: int, seen: Paths
) -> None:
    assert act("provide") == [""]
    with daemon(folder, node, *BINDS, str(folder)) as program:
        eventually(lambda: has_logged(folder, "waiting for the node agent"), "it waits")
        act("take_away")
        assert act("provide", "prepare") == ["", None]
        assert program.wait(DEADLINE_S) == 3
    with daemon(folder, node, *BINDS, str(folder)):
        eventually(seen.control.exists, "the next one serves")


@NEEDS_ROOT
def test_an_agent_that_sees_what_was_unmounted_ends_to_be_started_again(
    act: Act, folder: Path, seen: Paths
) -> None:
    """Else its grants would be where no token daemon looks."""
    assert act("provide") == [""]
    assert act("take_away", "provide", within=(*BINDS, str(folder))) == [None, {"failed": "ESTALE"}]
    assert not seen.root.is_mount()
    assert act("provide") == [""]


@NEEDS_ROOT
def test_a_node_with_grants_in_the_plain_folder_keeps_it(
    act: Act, folder: Path, node: int, seen: Paths
) -> None:
    write_grant(seen, grant("a"))
    with daemon(folder, node) as program:
        assert wait_status(seen, "a", DEADLINE_S).state == "ACTIVE"
        assert "token daemon serves it" in act("provide")[0]
        client = Client(seen, "a")
        client.open()
        client.close()
        assert program.poll() is None
    assert "grants in it" in act("provide")[0]
    assert not seen.root.is_mount()


@NEEDS_ROOT
def test_a_full_one_refuses_new_claims_and_serves_the_others(
    act: Act, folder: Path, node: int, seen: Paths
) -> None:
    assert act("provide", "prepare") == ["", None]
    small = ["mount", "-o", "remount,size=1m", str(folder)]
    subprocess.run(["nsenter", "--target", str(node), "--mount", *small], check=True)
    with daemon(folder, node) as program:
        eventually(seen.control.exists, "it serves")
        write_grant(seen, grant("a"))
        assert wait_status(seen, "a", DEADLINE_S).state == "ACTIVE"
        filled = fill(seen.counters("a"), leave=4)
        write_grant(seen, grant("b"))
        status = wait_status(seen, "b", DEADLINE_S)
        assert (status.state, "No space left on device" in status.reason) == ("REFUSED", True)
        client = Client(seen, "a")
        client.open()
        client.close()
        assert program.poll() is None
        os.truncate(seen.counters("a"), filled)
        write_grant(seen, grant("c", 0.1))
        assert wait_status(seen, "c", DEADLINE_S).state == "ACTIVE"


def fill(file: Path, *, leave: int) -> int:
    """Extend a file as a container can, until so many blocks are left; returns its size before."""
    before = file.stat().st_size
    status = os.statvfs(file)
    with file.open("ab") as opened:
        opened.write(bytes((status.f_bavail - leave) * status.f_frsize))
    return before


@NEEDS_ROOT
def test_attributes_that_a_container_sets_take_no_room_of_others(act: Act, seen: Paths) -> None:
    assert act("provide", "grant") == ["", None]
    file = seen.counters("a")
    file.touch()
    try:
        os.setxattr(file, "user.first", b"")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("the tmpfs of this kernel has no such attributes")
    with contextlib.suppress(OSError):
        for number in range(ATTRIBUTES):
            os.setxattr(file, f"user.{number}", bytes(60_000))
    for number in range(MAX_HOLDERS):
        seen.grant(f"later-{number}").touch()


def test_the_metric_says_whether_there_is_one() -> None:
    for is_bounded in (True, False):
        registry = CollectorRegistry()
        run_mount.register(registry, is_bounded=is_bounded)
        line = f"kubeshare_node_run_folder_bounded {float(is_bounded)}"
        assert line in generate_latest(registry).decode().splitlines()
