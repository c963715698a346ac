"""`kubeshare top`: what it shows, and what it says when there is nothing to show."""

import csv
import io
import json

import pytest

from cli.conftest import Machine
from deadlines import eventually
from kubeshare.cli.top import FIELDS, as_csv, by_gpu
from kubeshare.tokens.files.degraded import write_degraded

CLAIM = {
    "gpu": "GPU-a",
    "model": "V100",
    "claim": "c",
    "holder": "train (7)",
    "state": "open",
    "requestMicros": 300_000,
    "limitMicros": 600_000,
    "share": 0.4987,
    "chargedNs": 12_340_000_000,
    "waits": 2,
    "waitedNs": 200_000_000,
    "longestWaitNs": 130_000_000,
    "memoryBytes": 2**30,
    "memoryUsedBytes": 512 * 2**20,
    "memoryTotalBytes": 16 * 2**30,
}


def test_a_line_says_what_a_holder_may_and_what_it_got() -> None:
    ((_, title, lines),) = by_gpu([CLAIM])

    assert title == "V100 GPU-a: 0.3 of its time requested, 1Gi of 16Gi given"
    assert lines == [("train (7)", "open", "0.3", "0.6", "0.50", "12.3s", "512Mi/1Gi", "100/130ms")]


def test_csv_has_a_line_for_each_gpu_of_each_holder_the_largest_request_first() -> None:
    claims = [
        {**CLAIM, "claim": name, "gpu": gpu, "requestMicros": micros}
        for name, gpu, micros in (("c", "GPU-b", 1), ("d", "GPU-a", 2), ("e", "GPU-a", 3))
    ]
    rows = list(csv.DictReader(io.StringIO(as_csv(claims))))
    assert tuple(rows[0]) == FIELDS
    assert [(row["gpu"], row["requestMicros"]) for row in rows] == [
        ("GPU-a", "3"),
        ("GPU-a", "2"),
        ("GPU-b", "1"),
    ]
    assert (rows[0]["share"], rows[0]["shareName"]) == ("0.4987", "")


def test_a_share_is_shown_with_its_name_and_its_limit_while_alone() -> None:
    claims = [
        {**CLAIM, "holder": "ns/pod", "shareName": name, "limitAloneMicros": alone}
        for name, alone in (("train", 900_000), ("serve", 600_000), ("", 0))
    ]

    ((_, _, lines),) = by_gpu(claims)

    assert [(line[0], line[3]) for line in lines] == [
        ("ns/pod:train", "0.6 (0.9 alone)"),
        ("ns/pod:serve", "0.6"),
        ("ns/pod", "0.6"),
    ]


def test_a_latency_sensitive_share_is_marked() -> None:
    ((_, _, (line,)),) = by_gpu([{**CLAIM, "latencySensitive": True}])

    assert line[2] == "0.3 (prompt)"


def test_memory_that_is_not_limited_to_what_is_reserved_is_shown() -> None:
    ((_, title, (line,)),) = by_gpu([{**CLAIM, "memoryLimitBytes": 16 * 2**30}])

    assert line[6] == "512Mi/1Gi (at most 16Gi)"
    assert title.endswith("1Gi of 16Gi given")


def test_memory_of_the_host_is_shown_where_some_is_pinned() -> None:
    ((_, _, (line,)),) = by_gpu([{**CLAIM, "hostMemoryBytes": 3 * 2**30}])

    assert line[6] == "512Mi/1Gi + 3Gi of the host"


def test_memory_beyond_the_gpus_is_shown_where_it_is_oversubscribed() -> None:
    claim = {**CLAIM, "memoryTotalBytes": 24 * 2**30, "memoryPhysicalBytes": 16 * 2**30}

    ((_, title, (line,)),) = by_gpu([{**claim, "memorySpilledBytes": 128 * 2**20}])

    assert title.endswith("1Gi of 24Gi given, 16Gi on the GPU")
    assert line[6] == "512Mi/1Gi (128Mi managed)"


def test_holders_stand_under_their_gpu_the_largest_request_first() -> None:
    claims = [
        {**CLAIM, "gpu": "GPU-b", "holder": "alone"},
        {**CLAIM, "holder": "small"},
        {**CLAIM, "holder": "large", "requestMicros": 500_000},
    ]

    shown = [(title.split()[1], [line[0] for line in lines]) for _, title, lines in by_gpu(claims)]

    assert shown == [("GPU-a:", ["large", "small"]), ("GPU-b:", ["alone"])]


def test_what_was_refused_is_not_counted_as_given() -> None:
    claims = [CLAIM, {**CLAIM, "state": "refused", "requestMicros": 900_000}]

    assert by_gpu(claims)[0][1].startswith("V100 GPU-a: 0.3 of its time requested, 1Gi")


def test_without_a_daemon_it_says_what_to_do(machine: Machine) -> None:
    code, output, errors = machine.kubeshare("top", "--once")

    assert (code, output) == (3, "")
    assert "`kubeshare run` starts one" in errors
    # Named as it is installed.
    assert errors.rstrip().endswith("the node's pod of kubeshare-token-daemon")


@pytest.mark.slow
@pytest.mark.native
def test_holders_are_shown_as_a_table_and_as_json(machine: Machine) -> None:
    job = machine.burn(0.3, 0.6, "--memory", "512Mi")
    eventually(lambda: machine.claims().get(job.pid, {}).get("memoryUsedBytes"), "it uses memory")

    code, table, _ = machine.kubeshare("top", "--once")
    assert code == 0
    assert f"burn ({job.pid})" in table
    assert "512Mi/1Gi" in table
    assert "\x1b[" not in table

    code, text, _ = machine.kubeshare("top", "--once", "-o", "json")
    assert code == 0
    found = json.loads(text)
    assert found["claims"][0]["requestMicros"] == 300_000
    assert found["degraded"] == {}

    write_degraded(machine.paths, {found["claims"][0]["gpu"]: "GPUsOffered: run this"})
    _, table, _ = machine.kubeshare("top", "--once")
    assert table.splitlines()[1].rstrip() == "degraded: GPUsOffered: run this"
    _, text, _ = machine.kubeshare("top", "--once", "-o", "json")
    assert list(json.loads(text)["degraded"].values()) == ["GPUsOffered: run this"]


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.serial
def test_two_saturating_jobs_are_shown_near_their_shares(machine: Machine) -> None:
    jobs = [machine.burn(0.3, 0.6), machine.burn(0.4, 0.6)]

    def shares() -> list[float]:
        claims = machine.claims()
        return [claims[job.pid]["share"] if job.pid in claims else 0 for job in jobs]

    eventually(
        lambda: shares() == pytest.approx([0.5, 0.5], abs=0.03),
        "both are within three points of a half",
    )
