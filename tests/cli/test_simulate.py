"""`kubeshare sim`: its output, its errors, and what remains of an interrupted run."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deadlines import DEADLINE_S, eventually
from fakes.policy_package import install_policy
from kubeshare.cli.main import main
from kubeshare.cli.simulate.command import simulate
from kubeshare.simulator import systems
from kubeshare.simulator.systems import System

SMALL = ["--jobs", "40", "--nodes", "1", "--gpus", "2"]


def sim(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, arguments, catch_exceptions=False, standalone_mode=False)


def as_json(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(sim(*arguments, "-o", "json").stdout)
    return answer


def test_the_json_has_each_run_and_the_means() -> None:
    answer = as_json(*SMALL, "--policy", "locality", "--policy", "whole", "--seeds", "3")
    assert (answer["gpus"], answer["skipped_lines"]) == (2, 0)
    assert [(run["policy"], run["seed"]) for run in answer["runs"]] == [
        *(("locality", seed) for seed in range(3)),
        *(("whole", seed) for seed in range(3)),
    ]
    assert {run["finished"] for run in answer["runs"]} == {40}
    throughput = answer["policies"]["locality"]["jobs_per_minute"]
    own = [run["jobs_per_minute"] for run in answer["runs"][:3]]
    assert throughput["mean"] == pytest.approx(sum(own) / 3)
    assert throughput["half_width"] > 0
    assert throughput["mean"] > answer["policies"]["whole"]["jobs_per_minute"]["mean"]


def test_the_table_has_a_line_for_each_policy_and_the_next_step() -> None:
    lines = sim(*SMALL, "--policy", "binpack", "--policy", "topology").stdout.splitlines()
    assert lines[0] == "40 jobs, 2 GPUs, 1 run each"
    assert [line.split()[0] for line in lines[1:4]] == ["policy", "binpack", "topology"]
    assert lines[-1].startswith("Next: ")


def test_slowdowns_are_read_from_a_file_and_the_option_goes_before(tmp_path: Path) -> None:
    jobs, table = tmp_path / "jobs.csv", tmp_path / "slowdowns.csv"
    jobs.write_text("arrival,duration,request,kind\n0,100,0.5,A\n0,100,0.5,B\n")
    table.write_text(
        "kind,need,request,beside,beside_need,beside_request,slowdown\nB,0.5,0.5,A,0.5,0.5,1.4\n"
    )
    options = [str(jobs), "--nodes", "1", "--gpus", "1"]
    (plain,) = as_json(*options)["runs"]
    (slow,) = as_json(*options, "--slowdowns-from", str(table))["runs"]
    both = ["--slowdowns-from", str(table), "--slowdown", "B:A=1.8"]
    (slower,) = as_json(*options, *both)["runs"]
    # When A has ended, B goes on at full speed.
    assert slow["makespan_s"] - plain["makespan_s"] == pytest.approx(100 * (1 - 1 / 1.4), abs=0.1)
    assert slower["makespan_s"] - plain["makespan_s"] == pytest.approx(100 * (1 - 1 / 1.8), abs=0.1)


def test_users_wait_for_their_jobs() -> None:
    whole = ["--users", "2", "--jobs", "20", "--duration", "10", "--policy", "whole"]
    (run,) = as_json(*SMALL, *whole)["runs"]
    # Ten jobs one after another on each of two GPUs; a pod of Kubernetes starts in .21 s.
    assert (run["finished"], run["wait_mean_s"]) == (20, 0)
    assert run["makespan_s"] == pytest.approx(102.1)


def test_latencies_are_shown_where_jobs_serve_requests() -> None:
    served = ["--policy", "whole", "--service-time", "0.01"]
    (run,) = as_json(*SMALL, *served)["runs"]
    # At a mean need of .3 most find no other: they take 10 ms on a whole GPU.
    assert run["requests"] == pytest.approx(40 * 40 * 30, rel=0.2)
    assert run["latency_p50_s"] == pytest.approx(0.01, rel=0.02)
    assert 0.02 < run["latency_p99_s"] < 0.2
    head, row = sim(*SMALL, *served).stdout.splitlines()[1:3]
    assert head.endswith("p50 ms  p99 ms")
    assert float(row.split()[-1]) == pytest.approx(1000 * run["latency_p99_s"], abs=0.1)
    assert "p50" not in sim(*SMALL).stdout


def test_files_have_the_course_and_the_jobs(tmp_path: Path) -> None:
    series, ended = tmp_path / "series.csv", tmp_path / "ended.csv"
    sim(*SMALL, "--series", str(series), "--ended", str(ended))
    with ended.open() as file:
        jobs = list(csv.DictReader(file))
    assert len({job["job"] for job in jobs}) == 40
    assert all(float(job["placed_s"]) < float(job["finished_s"]) for job in jobs)
    with series.open() as file:
        steps = list(csv.DictReader(file))
    assert all(0 <= float(step["used_gpus"]) <= 2 for step in steps)


def test_the_csv_has_a_line_for_each_run() -> None:
    lines = sim(*SMALL, "--seeds", "2", "-o", "csv").stdout.splitlines()
    assert lines[0].startswith("policy,seed,arrived,finished,")
    assert [line.split(",")[:4] for line in lines[1:]] == [
        ["locality", "0", "40", "40"],
        ["locality", "1", "40", "40"],
    ]


def test_what_was_refused_evicted_or_never_placed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "arrival,duration,gpus,priority,preemptible,gang,min_available\n"
        "0,10,1,0,true,,\n1,10,1,1,false,,\n2,10,3,0,false,,\n3,10,1,0,false,g,2\n"
    )
    lines = sim(str(path), "--nodes", "1", "--gpus", "1").stdout.splitlines()
    assert "locality: 1 job never placed" in lines
    assert "locality: 1 eviction" in lines
    assert "locality: 1 refused: 3 GPUs asked, and no node has more than 1 that do" in lines


def test_a_filled_cluster_says_how_much_of_it_is_fragmented(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("arrival,duration,request\n" + "0,1,0.6\n" * 4)
    options = [str(jobs), "--nodes", "1", "--gpus", "4", "--owned", "--fill", "1.3"]
    # Shares of .6 leave .4 of each GPU to none.
    assert (
        "locality: fragmented GPUs, by how much was requested: 30.0 % (of 55.0 % idle) at 60 %, "
        "40.0 % (of 40.0 % idle) at 90 %"
    ) in sim(*options).stdout
    assert "fragmented" not in sim(*SMALL).stdout
    assert len(as_json(*options)["runs"][0]["fragments"]) >= 2


def test_a_filled_cluster_says_what_no_placement_exceeds(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("arrival,duration,request\n" + "0,1,0.6\n" * 4)
    options = [str(jobs), "--nodes", "1", "--gpus", "4", "--owned", "--fill", "1.3"]
    words = "gradient: no placement gives away more than 60.00 % of the GPUs, by relaxation"
    assert words in sim(*options, "--policy", "gradient").stdout
    assert as_json(*options, "--policy", "gradient")["runs"][0]["bound"] == pytest.approx(0.6)
    assert "by relaxation" not in sim(*options).stdout


def test_skipped_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("arrival,duration\n0,1\nx,1\n2,1\n")
    assert as_json(str(path), "--lenient")["skipped_lines"] == 1


def test_one_bad_line_of_many_is_named_or_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    lines = [f"{at},1" for at in range(1000)]
    lines[345] = "soon,1"
    path.write_text("\n".join(["arrival,duration", *lines, ""]))
    assert main(["sim", str(path)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "",
        f"kubeshare: {path}:347: arrival: 'soon' is not a number of seconds\n",
    )
    assert main(["sim", str(path), "--lenient", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["skipped_lines"], answer["runs"][0]["finished"]) == (1, 999)


def test_what_no_gpu_can_give_is_refused_and_the_rest_runs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("arrival,duration,memory,model\n0,1,64Gi,\n1,1,1Gi,T4\n2,1,1Gi,\n")
    lines = sim(str(path), "--gpu-model", "V100").stdout.splitlines()
    assert "locality: 1 refused: 64Gi asked, and the largest GPU has 16Gi" in lines
    assert sum("1 refused: " in line for line in lines) == 2
    assert as_json(str(path), "--gpu-model", "V100")["runs"][0]["finished"] == 1


def test_ctrl_c_leaves_what_was_simulated(tmp_path: Path) -> None:
    ended = tmp_path / "ended.csv"
    endless = ["--jobs", "10000000", "--interarrival", "30", "--duration", "5"]
    # A shell's background job ignores the signal, and so would what it starts.
    program = (
        "import signal, sys; from kubeshare.cli.main import main;"
        "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "sim", *endless, "-o", "json"]
    with subprocess.Popen(
        [*command, "--ended", str(ended)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        eventually(lambda: ended.exists() and ended.stat().st_size > 1000, "jobs end")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    answer = json.loads(out)
    (run,) = answer["runs"]
    assert (answer["interrupted"], run["partial"]) == (True, True)
    with ended.open() as file:
        rows = len(list(csv.DictReader(file)))
    assert 0 < run["finished"] - 1 <= rows <= run["finished"]  # it may end between the two
    assert b"Interrupted: the last run is partial" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "none"], "policy none is not registered; these are: binpack, locality"),
        (["--demand", "2"], "demand mean: 2 is not from 0 to 1 GPU"),
        (["--keep", "-1"], "--keep: -1 s is negative"),
        (["--cpus", "4"], "give both --cpus and --memory"),
        (["--gpu-memory", "much"], "--gpu-memory: "),
        (["--gpus", "0"], "the cluster has no GPU"),
        (["--nodes", "1000000"], "4000000 GPUs are more than 1000000"),
        (["--slowdowns-from", __file__], "test_simulate.py:1: column"),
        (["--slowdown", "A=2"], "'A=2' is not KIND:BESIDE=FACTOR"),
        (["--slowdown", "A:B=0.5"], "'A:B=0.5' is not KIND:BESIDE=FACTOR"),
        (["--compare", "locality"], "'locality' is not two policies, A,B"),
        (["--compare", "locality,locality"], "is not two policies"),
        (["--compare", "locality,whole", "--policy", "fgd"], "either --policy or --compare"),
        (["nowhere.csv"], "nowhere.csv"),
        (["--users", "0"], "--users"),
        (["--users", "2", "--think", "-1"], "think: -1 s is not a time from 0"),
        (["--users", "2", "--interarrival", "3"], "--interarrival is for jobs that arrive at"),
        (["--users", "2", "--fill", "1"], "--fill is for jobs that arrive at random"),
        (["--think", "3"], "--think is for a closed loop: give --users, too"),
        (["--service-time", "-1"], "service time: -1 s is not a time from 0"),
        ([__file__, "--users", "5"], "--users is for random jobs, and the file has its own"),
        (["--users", "2", "--tier", "control"], "does not simulate a closed loop (--users)"),
        (["--service-time", "1", "--tier", "control"], "serves requests, which --tier control"),
        (["--request-time", "1"], "--request-time and --restart are for --tier control"),
        (["--restart", "scheduler@1"], "--request-time and --restart are for --tier control"),
        (["--tier", "control", "--request-time", "-1"], "--request-time: -1 s is not from 0 to 10"),
        (["--tier", "control", "--restart", "agent@1"], "'agent@1' is not PROGRAM@SECONDS"),
        (["--tier", "control", "--restart", "scheduler@x"], "'scheduler@x' is not PROGRAM@SECONDS"),
        (["--tier", "control", "--policy", "whole"], "whole is a baseline"),
        (["--tier", "control", "--policy", "none"], "policy none is not registered"),
        ([__file__, "--jobs", "5"], "--jobs is for random jobs, and the file has its own"),
        (
            ["--openb", __file__, __file__, "--gpus", "5"],
            "--gpus is for a cluster of equal nodes, and the trace has its own",
        ),
    ],
)
def test_wrong_use_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["sim", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_two_policies_are_compared_seed_by_seed() -> None:
    answer = as_json(*SMALL, "--compare", "whole,locality", "--seeds", "3")
    runs = {(run["policy"], run["seed"]): run["jobs_per_minute"] for run in answer["runs"]}
    more = [runs["locality", seed] - runs["whole", seed] for seed in range(3)]
    found = answer["differences"]["jobs_per_minute"]
    assert answer["compared"] == ["whole", "locality"]
    assert found["mean"] == pytest.approx(sum(more) / 3)
    shown = sim(*SMALL, "--compare", "whole,locality", "--seeds", "3").stdout
    (row,) = [line for line in shown.splitlines() if line.startswith("locality - whole ")]
    assert f" {found['mean']:.1f} ±{found['half_width']:.1f} " in row


def test_a_policy_differs_from_itself_under_another_name_by_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(systems.BASELINES, "other", systems.BASELINES["whole"])
    answer = as_json(*SMALL, "--compare", "whole,other", "--seeds", "2")
    found = {(each["mean"], each["half_width"]) for each in answer["differences"].values()}
    assert found == {(0, 0)}


def test_an_interrupted_run_keeps_what_it_has_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = 0
    inner = systems.system("locality", systems.Setting(0)).policy

    def interrupted(ledger: Any, demand: Any) -> Any:
        nonlocal placed
        placed += 1
        if placed > 10:
            raise KeyboardInterrupt
        return inner(ledger, demand)

    monkeypatch.setitem(
        systems.BASELINES, "stopped", lambda _: System(name="stopped", policy=interrupted)
    )
    arguments = [*SMALL, "--policy", "stopped", "--policy", "locality", "-o", "json"]
    assert main(["sim", *arguments]) == 130
    captured = capsys.readouterr()
    (run,) = json.loads(captured.out)["runs"]
    assert run["partial"]
    assert run["arrived"] == 11
    assert "the last run is partial" in captured.err


def test_a_partial_run_does_not_count_in_the_means(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = systems.system("locality", systems.Setting(0)).policy
    decided = 0

    def interrupted(ledger: Any, demand: Any) -> Any:
        nonlocal decided
        decided += 1
        if decided > 90:  # two runs of 40 jobs, and a part of the third
            raise KeyboardInterrupt
        return inner(ledger, demand)

    def stopped(*output: str) -> str:
        nonlocal decided
        decided = 0
        many = ["--nodes", "8", "--jobs", "40", "--seeds", "4"]
        return sim(*many, "--policy", "stopped", *output).stdout

    monkeypatch.setitem(
        systems.BASELINES, "stopped", lambda _: System(name="stopped", policy=interrupted)
    )
    answer = json.loads(stopped("-o", "json"))
    assert [run["partial"] for run in answer["runs"]] == [False, False, True]
    whole = [run["makespan_s"] for run in answer["runs"][:2]]
    assert answer["policies"]["stopped"]["makespan_s"]["mean"] == pytest.approx(sum(whole) / 2)
    assert "stopped (seed 2): interrupted, so it does not count in the means" in stopped()


def test_the_numbers_of_a_policy_that_was_only_begun_are_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(ledger: Any, demand: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(
        systems.BASELINES, "stopped", lambda _: System(name="stopped", policy=interrupted)
    )
    lines = sim(*SMALL, "--policy", "stopped").stdout.splitlines()
    assert lines[2].startswith("stopped (partial) ")
    assert as_json(*SMALL, "--policy", "stopped")["policies"] == {"stopped": {}}


def test_an_interruption_between_runs_keeps_those_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reads_long(setting: systems.Setting) -> System:
        raise KeyboardInterrupt

    monkeypatch.setitem(systems.BASELINES, "slow", reads_long)
    arguments = [*SMALL, "--policy", "locality", "--policy", "slow", "-o", "json"]
    assert main(["sim", *arguments]) == 130
    shown = capsys.readouterr()
    (run,) = json.loads(shown.out)["runs"]
    assert not run["partial"]
    assert "Interrupted: no more were begun." in shown.err


def test_all_policies_are_checked_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(ledger: Any, demand: Any) -> Any:
        raise AssertionError

    monkeypatch.setitem(systems.BASELINES, "never", lambda _: System(name="never", policy=never))
    assert main(["sim", *SMALL, "--policy", "never", "--policy", "none"]) == 2
    assert "policy none is not registered" in capsys.readouterr().err
    control = ["--tier", "control", "--policy", "locality", "--policy", "whole"]
    assert main(["sim", *SMALL, *control]) == 2
    assert "whole is a baseline" in capsys.readouterr().err


def test_a_policy_that_fails_leaves_the_results_of_the_runs_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(ledger: Any, demand: Any) -> Any:
        raise KeyError("house")

    monkeypatch.setitem(systems.BASELINES, "broken", lambda _: System(name="broken", policy=broken))
    series = tmp_path / "series.csv"
    policies = ["--policy", "locality", "--policy", "broken", "--series", str(series)]
    assert main(["sim", *SMALL, *policies, "-o", "json"]) == 2
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert [run["policy"] for run in answer["runs"]] == ["locality"]
    assert answer["failed"] == "policy broken failed at job-0: KeyError: 'house'"
    assert series.exists()
    assert "those of the runs before the one that failed" in shown.err
    assert "kubeshare: policy broken failed at job-0: KeyError: 'house'" in shown.err


@pytest.mark.slow
def test_the_hash_seed_of_the_process_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    # When the pair ends, its two neighbours go on alike, end together, and two others wait.
    path.write_text(
        "arrival,duration,request,need,gpus\n0,5,0.5,1,2\n0,20,0.5,1,1\n0,20,0.5,1,1\n"
        "1,3,1,1,1\n1,4,1,1,1\n"
    )

    def ended(hash_seed: str) -> str:
        written = tmp_path / f"{hash_seed}.csv"
        command = [sys.executable, "-m", "kubeshare.cli.main", "sim", str(path)]
        subprocess.run(
            [*command, "--nodes", "1", "--gpus", "2", "--ended", str(written)],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            timeout=DEADLINE_S,
        )
        return written.read_text()

    assert len({ended(seed) for seed in "1234"}) == 1


def test_a_policy_of_an_installed_package_is_compared_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from kubeshare.core.policies.binpack.policy import decide\n"
    install_policy(tmp_path, monkeypatch, source)
    answer = as_json(*SMALL, "--policy", "house", "--policy", "binpack")
    house, binpack = answer["runs"]
    assert house["policy"] == "house"
    assert house["jobs_per_minute"] == binpack["jobs_per_minute"]


def test_the_control_tier_has_the_numbers_of_the_programs() -> None:
    control = ["--tier", "control", "--request-time", "0.01", "--restart", "scheduler@5"]
    (run,) = as_json("--jobs", "5", *control)["runs"]
    assert run["finished"] == 5
    assert run["control"]["created"]["count"] == 5
    assert run["control"]["writes"]["device-manager"]["patch sharepods"] == 5
    lines = sim("--jobs", "5", *control).stdout.splitlines()
    assert "locality: scheduler was restarted 1 time" in lines
    assert any("device-manager: " in line and " writes a job: " in line for line in lines)


def test_without_looptime_the_control_tier_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("kubeshare.simulator.control")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "looptime", None)
    assert main(["sim", "--jobs", "5", "--tier", "control"]) == 3
    assert "pip install 'kubeshare[simulator]'" in capsys.readouterr().err
