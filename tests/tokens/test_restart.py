"""Sessions and counts survive a restart of the daemon."""

import os
import shutil
import signal
import socket
import urllib.request
from pathlib import Path

from deadlines import DEADLINE_S, eventually
from kubeshare.core.token import Tally
from kubeshare.tokens.files import tallies
from kubeshare.tokens.files.grants import remove_grant, write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import read_status, wait_status
from kubeshare.tokens.files.tallies import Tallies
from kubeshare.tokens.wire.protocol import GateState, GrantState
from tokens.helpers import (
    GPU_A,
    Client,
    Page,
    RunningDaemon,
    grant,
)
from tokens.program import listening_port, start_program


def test_a_new_daemon_goes_on_with_the_pages_of_the_old_one(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a", 0.6))
        daemon.grant(grant("refused", 0.5))
        old = Client(paths, "a")
        old.open()
        epoch = old.page.epoch
    assert old.is_dropped
    assert old.page.grant_state is GrantState.ACTIVE

    with RunningDaemon(paths):
        assert read_status(paths, "a").state == "ACTIVE"  # type: ignore[union-attr]
        assert read_status(paths, "refused").state == "REFUSED"  # type: ignore[union-attr]
        assert old.page.gate is GateState.CLOSED
        assert old.page.epoch > epoch
        back = Client(paths, "a")
        assert back.page.inode == old.page.inode
        back.open()
        eventually(lambda: old.page.gate is GateState.OPEN, "the old mapping sees it")


def test_what_ended_while_no_daemon_ran_is_swept_up(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a"))
        page = Page(paths.claim("a") / "page")
    remove_grant(paths, "a")

    with RunningDaemon(paths):
        assert page.grant_state is GrantState.REVOKED, "a process that goes on sees it"
        assert not paths.claim("a").exists()
        assert not paths.counters("a").exists()
        assert read_status(paths, "a") is None


def test_a_grant_that_a_new_daemon_does_not_understand_is_revoked_with_its_file(
    paths: Paths,
) -> None:
    with RunningDaemon(paths) as first:
        first.grant(grant("a"))
        page = Page(paths.claim("a") / "page")
    paths.grant("a").write_text("{")
    with RunningDaemon(paths):
        assert page.grant_state is GrantState.ACTIVE, "its processes may use what they have"
        paths.grant("a").unlink()
        eventually(lambda: page.grant_state is GrantState.REVOKED, "the page says so")
        eventually(lambda: not paths.claim("a").exists(), "the folder is gone")


def test_the_socket_of_a_dead_daemon_is_replaced(paths: Paths) -> None:
    paths.make()
    write_grant(paths, grant("a"))
    paths.claim("a").mkdir()
    for place in (paths.claim("a") / "socket", paths.control):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(str(place))

    with RunningDaemon(paths) as daemon:
        client = Client(paths, "a")
        client.open()
        assert daemon.view("a")["state"] == "open"


def test_a_second_daemon_is_refused_with_a_clear_message(daemon: RunningDaemon) -> None:
    second = start_program(daemon.paths)

    _, errors = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 1
    assert f"pid {os.getpid()} serves {daemon.paths.root} already" in errors
    assert "Traceback" not in errors


def test_sigterm_leaves_the_holders_running(paths: Paths) -> None:
    write_grant(paths, grant("a"))
    with start_program(paths) as program:
        wait_status(paths, "a", DEADLINE_S)
        client = Client(paths, "a")
        client.open()
        program.send_signal(signal.SIGTERM)
        assert program.wait(DEADLINE_S) == 0

    assert client.page.grant_state is GrantState.ACTIVE
    assert client.page.gate is GateState.OPEN


def test_a_daemon_without_grants_ends_when_asked_to(paths: Paths) -> None:
    with start_program(paths, "--idle-exit", "0.01") as program:
        assert program.wait(DEADLINE_S) == 0


def test_a_daemon_whose_run_folder_is_removed_ends(paths: Paths) -> None:
    write_grant(paths, grant("a"))
    with start_program(paths) as program:
        wait_status(paths, "a", DEADLINE_S)
        shutil.rmtree(paths.root)

        assert program.wait(DEADLINE_S) == 0


def test_what_is_counted_of_a_claim_goes_on_over_a_restart(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a", quota_ns=5_000_000))
        client = Client(paths, "a")
        client.open()
        eventually(lambda: daemon.view("a")["chargedNs"] > 50_000_000, "some use is charged")
        client.close()
        eventually(lambda: daemon.view("a")["state"] == "idle", "it holds nothing")
        before = daemon.view("a")

    with RunningDaemon(paths) as daemon:
        after = daemon.view("a")

    counted = ("chargedNs", "grants", "waits", "waitedNs", "longestWaitNs")
    assert {name: after[name] for name in counted} == {name: before[name] for name in counted}


def test_a_turn_that_goes_on_is_counted_up_to_the_end_of_the_daemon(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a", quota_ns=10_000_000_000))
        client = Client(paths, "a")
        client.open()
        eventually(lambda: daemon.view("a")["chargedNs"] > 0, "the turn takes time")
        before = daemon.view("a")
        assert tallies.read(paths.tally("a"))[0].charged_ns == 0

    assert client.is_dropped
    (tally,) = tallies.read(paths.tally("a"))
    assert tally.charged_ns >= before["chargedNs"]


def test_a_time_without_a_daemon_is_noted_of_the_claims_from_before_it(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a", 0.3))
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("b", 0.3))
    assert [tallies.read(paths.tally(claim))[0].gaps for claim in ("a", "b")] == [1, 0]


def test_what_was_counted_ends_with_the_grant(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    assert daemon.paths.tally("a").exists()

    remove_grant(daemon.paths, "a")

    eventually(lambda: not daemon.paths.tally("a").exists(), "the file is gone")


def test_a_tally_that_is_broken_counts_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "tally").write_bytes(b"x" * 144)

    tallies = Tallies(tmp_path / "tally", 1)

    assert tallies.read(0) == Tally()


def scraped(port: int) -> str | None:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S
        ) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def test_metrics_tell_what_a_claim_holds_and_got(paths: Paths) -> None:
    write_grant(paths, grant("a", 0.3, 0.6, share="train"))
    with start_program(paths, "--port", "0") as program:
        wait_status(paths, "a", DEADLINE_S)
        client = Client(paths, "a")
        client.open()
        port = eventually(lambda: listening_port(program.pid), "it listens")
        text = eventually(lambda: scraped(port), "metrics are served")
        program.terminate()
        assert program.wait(DEADLINE_S) == 0

    labels = f'{{claim="a",container="",gpu="{GPU_A}",namespace="",pod="",share="train"}}'
    assert f"kubeshare_token_grants_total{labels} 1.0" in text
    assert f"kubeshare_token_request{labels} 0.3" in text
    assert f"kubeshare_token_processes{labels} 1.0" in text
    for name in ("gpu_seconds_total", "share", "share_10s", "waits_total", "drains_total"):
        assert f"kubeshare_token_{name}{labels} " in text
    assert "kubeshare_token_connections_dropped_total 0.0" in text


def test_tokens_are_handed_out_also_where_the_port_is_taken(paths: Paths) -> None:
    write_grant(paths, grant("a"))
    log = paths.root / "log"
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with start_program(paths, "--port", port, stdout=log) as program:
            wait_status(paths, "a", DEADLINE_S)
            Client(paths, "a").open()
            # It serves tokens first: where it ends before it tries the port, it says nothing of it.
            eventually(lambda: "the port cannot be had" in log.read_text(), "it says so")
            program.terminate()
            assert program.wait(DEADLINE_S) == 0
