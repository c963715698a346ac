"""`kubeshare run` on a fake GPU: what passes through, what is refused, what is left behind."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.conftest import FAKE, Machine
from deadlines import DEADLINE_S, eventually
from kubeshare import native
from kubeshare.cli.run.command import parse_quota
from kubeshare.core.errors import InvalidValueError
from kubeshare.tokens.wire.protocol import CLAIM_FOLDER_ENV
from tokens.helpers import Page
from wakeups import least_disturbed

MIB = 1 << 20
SMALL = ("--request", ".3", "--memory", "1Gi")


def grants(machine: Machine) -> list[Path]:
    return list(machine.paths.grants.iterdir()) if machine.paths.grants.exists() else []


@pytest.mark.parametrize(
    ("text", "quota_ns"),
    [("100ms", 100_000_000), (".05s", 50_000_000), ("5000us", 5_000_000), ("10s", 10**10)],
)
def test_a_quota_is_a_duration(text: str, quota_ns: int) -> None:
    assert parse_quota(text) == quota_ns


@pytest.mark.parametrize("text", ["100", "ms", "4ms", "11s", "-5ms", "1h", "", "٩ms"])
def test_what_is_no_quota_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^--quota: "):
        parse_quota(text)


def test_a_command_that_does_not_exist_is_said_so(machine: Machine) -> None:
    code, _, errors = machine.kubeshare("run", *SMALL, "--", "no-such-command")

    assert (code, errors) == (127, "kubeshare run: no-such-command: no such command\n")
    assert not machine.paths.root.exists()


def test_wrong_values_are_wrong_use(machine: Machine) -> None:
    code, _, errors = machine.kubeshare("run", "--request", "1.5", "--", "true")

    assert code == 2
    assert errors.startswith("kubeshare: --request: 1.5")


def test_a_command_without_a_share_is_wrong_use(machine: Machine) -> None:
    code, _, errors = machine.kubeshare("run", "--", "true")

    assert code == 2
    assert "give --request, a share of one GPU, or --gpus, a number of GPUs" in errors


@pytest.mark.parametrize("option", ["--request", "--limit", "--limit-alone", "--memory", "--gpu"])
def test_options_of_one_share_are_refused_beside_a_number_of_gpus(
    machine: Machine, option: str
) -> None:
    code, _, errors = machine.kubeshare("run", "--gpus", "2", option, ".5", "--", "true")

    assert code == 2
    assert errors.startswith("kubeshare: --gpus: ")
    assert f"leave {option} out" in errors


@pytest.mark.native
def test_fake_gpus_that_do_not_exist_are_wrong_use(machine: Machine) -> None:
    code, _, errors = machine.kubeshare("run", "--fake", "nosuch", *SMALL, "--", "true")

    assert code == 2
    [line] = errors.splitlines()  # not the fake library's own line beside it
    assert line.startswith("kubeshare: --fake: no profile nosuch: expected")


@pytest.mark.native
@pytest.mark.parametrize("separator", [["--"], []])
def test_the_command_keeps_its_arguments_output_and_exit_code(
    machine: Machine, separator: list[str]
) -> None:
    command = ["sh", "-c", 'echo "$0 $1"; exit 7', "--limit", "two words"]

    result = machine.kubeshare("run", "--fake", FAKE, *SMALL, *separator, *command)

    assert result == (7, "--limit two words\n", "")


@pytest.mark.native
def test_the_command_sees_the_library_its_claim_and_its_gpu(machine: Machine) -> None:
    code, output, _ = machine.kubeshare("run", "--fake", FAKE, *SMALL, "--", "env")

    variables = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert code == 0
    assert variables["LD_PRELOAD"] == str(native.path(native.DEVICE_LIBRARY))
    assert variables["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    assert Path(variables[CLAIM_FOLDER_ENV]).parent == machine.paths.claims


@pytest.mark.native
def test_a_command_on_several_gpus_sees_these_and_no_other(machine: Machine) -> None:
    small = machine.start_run(0.3, "sleep", "600", fake="V100x4")
    eventually(lambda: small.pid in machine.claims(), "the grant is there")

    code, output, errors = machine.kubeshare("run", "--fake", "V100x4", "--gpus", "2.5", "env")

    assert (code, errors) == (0, "")
    variables = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    seen = variables["CUDA_VISIBLE_DEVICES"].split(",")
    # The rest of one is on the GPU that is shared already, and comes after the whole ones.
    assert len(set(seen)) == 3
    assert seen[-1] == machine.claims()[small.pid]["gpu"]


@pytest.mark.native
@pytest.mark.slow
def test_a_job_on_several_gpus_has_one_grant_and_uses_them_all(machine: Machine) -> None:
    burn = (str(native.path("burn")), "--seconds", "600", "--gpus", "3", "--no-sync")
    job = machine.start("run", "--fake", "V100x3", "--gpus", "2.5", "--", *burn)

    eventually(lambda: len(machine.entries()) == 3, "the grant is there")
    entries = machine.entries()
    assert {entry["claim"] for entry in entries} == {entries[0]["claim"]}
    assert [(entry["requestMicros"], entry["memoryBytes"]) for entry in entries] == [
        (1_000_000, entries[0]["memoryTotalBytes"]),
        (1_000_000, entries[0]["memoryTotalBytes"]),
        (500_000, entries[0]["memoryTotalBytes"] // 2),
    ]
    eventually(
        lambda: all(entry["chargedNs"] > 100_000_000 for entry in machine.entries()),
        "it uses all of them",
    )
    job.kill()
    eventually(lambda: grants(machine) == [], "the grant is gone")


@pytest.mark.native
def test_several_gpus_that_do_not_fit_are_refused_with_who_holds_how_much(
    machine: Machine,
) -> None:
    holder = machine.start_run(0.3, "sleep", "600", fake="V100x2")
    eventually(lambda: holder.pid in machine.claims(), "the grant is there")

    code, _, errors = machine.kubeshare("run", "--fake", "V100x2", "--gpus", "2", "true")

    assert code == 1
    assert errors == (
        f"kubeshare run: refused: {machine.claims()[holder.pid]['gpu']} has 0.7 of its time left, "
        f"1 is requested; held by sleep ({holder.pid}): 0.3, 1Gi\n"
    )
    assert len(grants(machine)) == 1


@pytest.mark.native
def test_more_gpus_than_the_machine_has_are_wrong_use(machine: Machine) -> None:
    code, _, errors = machine.kubeshare("run", "--fake", "V100x2", "--gpus", "2.5", "true")

    assert code == 2
    assert errors.startswith("kubeshare: --gpus: needs 3 GPUs; this machine has 2: 0 (")


@pytest.mark.native
def test_what_options_say_of_its_time_is_granted(machine: Machine) -> None:
    limits = ("--limit", ".3", "--limit-alone", ".9", "--latency-sensitive")
    job = machine.start("run", "--fake", FAKE, *SMALL, *limits, "--", "sleep", "600")
    eventually(lambda: job.pid in machine.claims(), "the grant is there")

    claim = machine.claims()[job.pid]
    assert (claim["limitMicros"], claim["limitAloneMicros"]) == (300_000, 900_000)
    assert claim["latencySensitive"]


@pytest.mark.native
def test_the_command_has_the_signals_of_a_shell(machine: Machine) -> None:
    """Python ignores SIGPIPE; the command must not inherit that."""
    _, output, _ = machine.kubeshare(
        "run", "--fake", FAKE, *SMALL, "--", "grep", "SigIgn", "/proc/self/status"
    )

    assert int(output.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


@pytest.mark.native
def test_the_grant_is_gone_when_the_command_is(machine: Machine) -> None:
    assert machine.kubeshare("run", "--fake", FAKE, *SMALL, "--", "true")[0] == 0

    eventually(lambda: grants(machine) == [], "the grant is gone")
    eventually(lambda: list(machine.paths.claims.iterdir()) == [], "the claim's folder is gone")


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_frees_its_part(machine: Machine, number: signal.Signals) -> None:
    process = machine.start_run(0.9, "sleep", "600")
    eventually(lambda: process.pid in machine.claims(), "the grant is there")

    process.send_signal(number)

    assert process.wait(DEADLINE_S) == -number
    eventually(lambda: grants(machine) == [], "the grant is gone")
    assert machine.kubeshare("run", "--fake", FAKE, "--request", ".9", "true")[0] == 0


@pytest.mark.slow
@pytest.mark.native
def test_what_the_driver_counts_for_a_commands_context_is_charged(
    machine: Machine, tmp_path: Path
) -> None:
    profile = tmp_path / "contexts.profile"
    profile.write_text("model = V100\ncontext_memory = 300\n")
    burn = (str(native.path("burn")), "--seconds", "600", "--no-sync")
    process = machine.start_run(0.5, *burn, fake=str(profile))
    eventually(lambda: process.pid in machine.claims(), "the grant is there")
    page = machine.paths.claim(machine.claims()[process.pid]["claim"]) / "page"

    eventually(lambda: Page(page).cell()[-1] == 300 * MIB, "its context is charged")


@pytest.mark.native
def test_a_file_that_cannot_run_leaves_no_grant(machine: Machine, tmp_path: Path) -> None:
    script = tmp_path / "no-program"
    script.write_bytes(b"\x7fELF broken")
    script.chmod(0o755)

    code, _, errors = machine.kubeshare("run", "--fake", FAKE, *SMALL, "--", str(script))

    assert code == 126
    assert "Exec format error" in errors
    assert grants(machine) == []


@pytest.mark.slow
@pytest.mark.native
def test_a_full_gpu_is_refused_with_who_holds_how_much(machine: Machine) -> None:
    holder = machine.start_run(0.8, "sleep", "600")
    eventually(lambda: holder.pid in machine.claims(), "the grant is there")

    code, _, errors = machine.kubeshare("run", "--fake", FAKE, *SMALL, "--", "true")

    assert code == 1
    assert "has 0.2 of its time left, 0.3 is requested" in errors
    assert f"held by sleep ({holder.pid}): 0.8, 1Gi" in errors
    assert len(grants(machine)) == 1


@pytest.mark.slow
@pytest.mark.native
def test_the_next_gpu_is_taken_when_the_first_is_full(machine: Machine) -> None:
    first = machine.start_run(0.8, "sleep", "600", fake="V100x2")
    eventually(lambda: first.pid in machine.claims(), "the grant is there")

    second = machine.start_run(0.8, "sleep", "600", fake="V100x2")
    eventually(lambda: second.pid in machine.claims(), "the other grant is there")

    claims = machine.claims()
    assert claims[first.pid]["gpu"] != claims[second.pid]["gpu"]


@pytest.mark.native
def test_a_gpu_that_is_not_there_is_wrong_use(machine: Machine) -> None:
    code, _, errors = machine.kubeshare("run", "--fake", FAKE, "--gpu", "3", *SMALL, "--", "true")

    assert code == 2
    assert errors.startswith("kubeshare: --gpu: 3 does not exist; this machine has 0 (")


@pytest.mark.slow
@pytest.mark.native
def test_a_stale_folder_of_a_dead_daemon_is_no_obstacle(machine: Machine) -> None:
    assert machine.kubeshare("run", "--fake", FAKE, *SMALL, "--", "true")[0] == 0
    machine.kill_daemon()

    assert machine.kubeshare("run", "--fake", FAKE, *SMALL, "--", "true")[0] == 0


@pytest.mark.native
def test_two_at_once_start_one_daemon(machine: Machine) -> None:
    first, second = (machine.start_run(0.3, "sleep", "600") for _ in range(2))

    eventually(lambda: {first.pid, second.pid} <= machine.claims().keys(), "both are granted")


@pytest.mark.native
def test_the_daemon_is_nobodys_child(machine: Machine) -> None:
    """A command that waits for its children must not find one that it never started."""
    _, output, _ = machine.kubeshare(
        "run", "--fake", FAKE, *SMALL, "--", "sh", "-c", "cat /proc/$$/task/$$/children; echo"
    )

    children = output.split()
    assert str(machine.daemon_pid) not in children


@pytest.mark.native
def test_memory_beyond_the_claim_is_out_of_memory(machine: Machine) -> None:
    burn = str(native.path("burn"))

    job = machine.start_run(0.3, burn, "--steps", "1", "--memory", "2Gi")

    output, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in output


@pytest.mark.slow
@pytest.mark.native
def test_a_fixed_amount_of_work_comes_to_its_end(machine: Machine) -> None:
    job = machine.start_run(0.3, str(native.path("burn")), "--steps", "200")

    output, errors = job.communicate(timeout=DEADLINE_S)
    assert (job.returncode, errors) == (0, "")
    assert '"kernels": 200' in output


def settled(machine: Machine, jobs: list["subprocess.Popen[str]"]) -> None:
    """Wait until the daemon has charged the jobs for longer than its average remembers.

    Each of them: one that has not launched anything yet leaves its share to the others.
    """
    before = {pid: claim["chargedNs"] for pid, claim in machine.claims().items()}

    def charged() -> bool:
        claims = machine.claims()
        if not all(job.pid in claims for job in jobs):
            return False
        grown: list[int] = [claims[job.pid]["chargedNs"] - before.get(job.pid, 0) for job in jobs]
        return min(grown) > 0.5e9 and sum(grown) > 3e9

    eventually(charged, "the jobs have run for three seconds")


NEAR = 0.03
"""Of a share over a window of a machine that wakes its programs in time."""
WINDOW_S = 6.0


def assert_shares(
    machine: Machine, jobs: list["subprocess.Popen[str]"], targets: list[float]
) -> None:
    """By the GPU's own log the jobs have these shares."""
    shares, lost = least_disturbed(lambda: machine.shares(*jobs, seconds=WINDOW_S))
    assert shares == pytest.approx(targets, abs=NEAR + lost), f"{lost:.3f} of the window lost"


SHARES = {
    "alone at its limit": ([(0.3, 0.6)], [0.6]),
    "two": ([(0.3, 0.6), (0.4, 0.6)], [0.5, 0.5]),
    "three": ([(0.3, 0.6), (0.4, 0.6), (0.3, 0.5)], [0.3, 0.4, 0.3]),
}


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("name", SHARES)
def test_jobs_get_their_shares_by_the_gpus_own_log(machine: Machine, name: str) -> None:
    parts, targets = SHARES[name]
    jobs = [machine.burn(request, limit) for request, limit in parts]
    settled(machine, jobs)

    assert_shares(machine, jobs, targets)


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.serial
def test_jobs_outlive_the_daemon_and_converge_when_there_is_one_again(machine: Machine) -> None:
    jobs = [machine.burn(0.3, 0.6), machine.burn(0.4, 0.6)]
    settled(machine, jobs)

    machine.kill_daemon()
    before = machine.busy_ns()

    def both_go_on() -> bool:
        now = machine.busy_ns()
        return all(now[job.pid] - before[job.pid] > 500_000_000 for job in jobs)

    eventually(both_go_on, "both jobs go on without a daemon")
    assert [job.poll() for job in jobs] == [None, None]

    assert (
        machine.kubeshare("run", "--fake", FAKE, "--request", "0", "--memory", "1Mi", "true")[0]
        == 0
    )
    settled(machine, jobs)
    assert_shares(machine, jobs, [0.5, 0.5])


@pytest.mark.slow
@pytest.mark.native
def test_a_stopped_holder_does_not_stop_the_others(machine: Machine) -> None:
    stopped, other = machine.burn(0.3), machine.burn(0.3)
    eventually(lambda: len(machine.busy_ns()) == 2, "both use the GPU")
    os.kill(stopped.pid, signal.SIGSTOP)
    before = machine.busy_ns()[other.pid]

    eventually(lambda: machine.busy_ns()[other.pid] > before + 1_000_000_000, "the other runs")
