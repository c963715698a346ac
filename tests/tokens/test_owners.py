"""Grants end with the process that owns them."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import cast

import msgspec

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens.files.grants import GrantedPod, Owner, process_start_time, write_grant
from kubeshare.tokens.owners import Owners, holder_name
from tokens.conversation import Loop
from tokens.helpers import Client, RunningDaemon, grant
from tokens.virtual_time import VirtualDaemon


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    start_time = process_start_time(process.pid)
    assert start_time is not None
    return Owner(pid=process.pid, start_time=start_time)


def test_a_grant_ends_with_its_owner(daemon: RunningDaemon) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        daemon.grant(grant("a", owner=owner_of(process)))
        process.kill()

        eventually(lambda: not daemon.paths.grant("a").exists(), "the grant is gone")
        eventually(lambda: not daemon.paths.claim("a").exists(), "its folder is gone")


def test_children_that_outlive_the_owner_keep_the_grant_till_the_last_is_gone(
    daemon: RunningDaemon,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        daemon.grant(grant("a", owner=owner_of(process)))
        child = Client(daemon.paths, "a")
        process.kill()
        process.wait(DEADLINE_S)

    child.open()
    assert daemon.paths.grant("a").exists()
    child.close()
    eventually(lambda: not daemon.paths.claim("a").exists(), "its folder is gone")


def test_a_pid_that_is_another_process_now_is_not_the_owner(daemon: RunningDaemon) -> None:
    stranger = Owner(pid=os.getpid(), start_time=1)

    write_grant(daemon.paths, grant("a", owner=stranger))

    eventually(lambda: not daemon.paths.grant("a").exists(), "the grant is dropped")


def test_a_grant_is_held_by_a_pod_or_by_the_command_that_owns_it() -> None:
    pod = msgspec.structs.replace(grant("a"), pod=GrantedPod(namespace="ns", name="p", uid="u"))
    assert holder_name(pod) == pod.holder
    mine = grant("a", owner=Owner(pid=os.getpid(), start_time=0))
    command = Path("/proc/self/comm").read_text().strip()
    assert holder_name(mine) == f"{command} ({os.getpid()})"
    ended = grant("a", owner=Owner(pid=2**31 - 1, start_time=0))
    assert holder_name(ended) == f"ended ({2**31 - 1})"


def test_the_owner_of_a_grant_that_has_ended_does_not_end_a_later_one(
    virtual: VirtualDaemon,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        virtual.grant(grant("a", owner=owner_of(process)))
        virtual.revoke("a")
        virtual.grant(grant("a"))
        process.kill()
        process.wait(DEADLINE_S)
    virtual.turn()
    assert virtual.view("a")["state"] != "refused"
    assert virtual.paths.grant("a").exists()


def test_owners_are_watched_until_they_end_or_are_forgotten() -> None:
    loop, gone = Loop(), list[str]()
    owners = Owners(cast("asyncio.AbstractEventLoop", loop), gone.append)
    me = Owner(pid=os.getpid(), start_time=process_start_time(os.getpid()) or 0)
    assert not owners.watch("a", msgspec.structs.replace(me, start_time=1))
    assert not owners.watch("a", Owner(pid=2**22 + 1, start_time=1))
    with subprocess.Popen(["sleep", "60"]) as process:
        assert owners.watch("ends", owner_of(process))
        for claim in "bcd":
            assert owners.watch(claim, me)
        owners.forget("b")
        owners.forget("b")
        loop.turn()
        assert (len(loop.readers), gone) == (3, [])
        process.kill()
        process.wait(DEADLINE_S)
    loop.turn()
    assert (len(loop.readers), gone) == (2, ["ends"])
    owners.close()
    assert not loop.readers
