"""Grant files."""

import os
from pathlib import Path

import msgspec
import pytest

from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedPod,
    Owner,
    process_start_time,
    read_grant,
    refused_by_older_daemon,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import (
    GrantError,
    Paths,
)
from tokens.helpers import GI, GPU_A, GPU_B, grant


def test_a_grant_survives_the_way_through_its_file(paths: Paths) -> None:
    written = Grant(
        version=GRANT_VERSION,
        claim="ns-pod.main",
        gpus=grant("x", 0.25, 0.5).gpus,
        pod=GrantedPod(namespace="ns", name="pod", uid="u"),
        container="main",
        owner=Owner(pid=1, start_time=2),
        quota_ns=50_000_000,
    )

    write_grant(paths, written)

    assert read_grant(paths.grant("ns-pod.main")) == written


def test_the_file_has_the_names_that_were_agreed(paths: Paths) -> None:
    write_grant(paths, grant("a", 0.25, 0.5))

    assert msgspec.json.decode(paths.grant("a").read_bytes()) == {
        "version": 2,
        "claim": "a",
        "gpus": [
            {
                "uuid": GPU_A,
                "memoryTotalBytes": 16 * GI,
                "requestMicros": 250_000,
                "limitMicros": 500_000,
                "memoryBytes": GI,
            }
        ],
    }


@pytest.mark.parametrize("alone", [0, 500_000, 1_000_000])
def test_a_share_says_its_name_and_how_its_time_is_given(paths: Paths, alone: int) -> None:
    (share,) = grant("a", 0.25, 0.5).gpus
    share = msgspec.structs.replace(
        share, share="left", limit_alone_micros=alone, latency_sensitive=alone > 0
    )
    written = msgspec.structs.replace(grant("a"), gpus=(share,))
    write_grant(paths, written)

    assert read_grant(paths.grant("a")) == written
    (stored,) = msgspec.json.decode(paths.grant("a").read_bytes())["gpus"]
    assert (stored["share"], stored.get("limitAloneMicros", 0)) == ("left", alone)
    assert stored.get("latencySensitive", False) is (alone > 0)


@pytest.mark.parametrize(("version", "later"), [(GRANT_VERSION + 1, True), (0, False)])
def test_a_refusal_shows_whether_the_version_came_later(
    paths: Paths, version: int, *, later: bool
) -> None:
    paths.make()
    paths.grant("a").write_text(
        msgspec.json.encode(grant("a", 0.25, 0.5))
        .decode()
        .replace(f'"version":{GRANT_VERSION}', f'"version":{version}')
    )
    with pytest.raises(GrantError) as caught:
        read_grant(paths.grant("a"))
    assert refused_by_older_daemon(str(caught.value)) is later
    assert not refused_by_older_daemon("memory of the GPU would be over-committed")


def test_a_file_of_the_first_version_means_what_it_meant(paths: Paths) -> None:
    paths.make()
    share = {"uuid": GPU_A, "memoryTotal": 16 * GI, "request": 250_000, "limit": 500_000}
    share |= {"memory": GI, "model": "V100"}
    document = {"version": 1, "claim": "a", "gpus": [share], "quotaNs": 50_000_000}
    paths.grant("a").write_bytes(msgspec.json.encode(document))

    (same,) = grant("a", 0.25, 0.5).gpus
    assert read_grant(paths.grant("a")) == Grant(
        version=GRANT_VERSION,
        claim="a",
        gpus=(msgspec.structs.replace(same, model="V100"),),
        quota_ns=50_000_000,
    )


WHOLE_GRANT = msgspec.to_builtins(grant("a", 0.25, 0.5))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("uuid", "MIG-1", "not that of a whole GPU"),
        ("uuid", f"{GPU_A}::1", "not that of a whole GPU"),
        ("requestMicros", 600_000, "not in order"),
        ("requestMicros", -1, "not in order"),
        ("limitMicros", 1_000_001, "not in order"),
        ("limitAloneMicros", 499_999, "neither 0 nor from the limit"),
        ("limitAloneMicros", 1_000_001, "neither 0 nor from the limit"),
        ("limitAloneMicros", -1, "neither 0 nor from the limit"),
        ("memoryBytes", 0, "not within"),
        ("memoryBytes", 17 * GI, "not within"),
        ("memoryTotalBytes", 2**63, "not within"),
        ("memoryLimitBytes", GI - 1, "neither 0 nor from the memory"),
        ("memoryLimitBytes", 17 * GI, "neither 0 nor from the memory"),
        ("requestMicros", 0.3, "int"),
    ],
)
def test_a_part_that_cannot_be_is_refused(
    tmp_path: Path, field: str, value: object, says: str
) -> None:
    part = {**WHOLE_GRANT["gpus"][0], field: value}
    file = tmp_path / "a.json"
    file.write_bytes(msgspec.json.encode({**WHOLE_GRANT, "gpus": [part]}))

    with pytest.raises(GrantError, match=says):
        read_grant(file)


def test_a_gpu_may_be_named_once_only() -> None:
    with pytest.raises(ValueError, match="twice"):
        grant("a", gpus=(GPU_A, GPU_B, GPU_A))


def test_a_file_under_another_claims_name_is_refused(paths: Paths) -> None:
    write_grant(paths, grant("a"))
    paths.grant("a").rename(paths.grant("b"))

    with pytest.raises(GrantError, match="it is the grant of claim a"):
        read_grant(paths.grant("b"))


def test_removing_what_is_not_there_is_fine(paths: Paths) -> None:
    remove_grant(paths, "nobody")


def test_a_process_has_a_start_time_while_it_lives() -> None:
    assert process_start_time(os.getpid()) is not None
    assert process_start_time(2**22 + 1) is None
