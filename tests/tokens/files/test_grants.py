"""Grant files, names and folders."""

import os
from pathlib import Path

import msgspec
import pytest

from kubeshare.tokens.capacity import shortfall
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedPod,
    Owner,
    process_start_time,
    read_grant,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import (
    GrantError,
    Paths,
    check_claim,
    default_run_folder,
    write_whole,
)
from kubeshare.tokens.files.statuses import (
    DaemonMissingError,
    Status,
    read_status,
    wait_status,
    write_status,
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


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 128, "-", "a..b"])
def test_a_name_that_can_be_a_files_is_taken(name: str) -> None:
    assert check_claim(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "x" * 129, "a b", "ä", "a\n", "a\0"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(GrantError):
        check_claim(name)


WHOLE_GRANT = msgspec.to_builtins(grant("a", 0.25, 0.5))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("uuid", "MIG-1", "not that of a whole GPU"),
        ("uuid", f"{GPU_A}::1", "not that of a whole GPU"),
        ("requestMicros", 600_000, "not in order"),
        ("requestMicros", -1, "not in order"),
        ("limitMicros", 1_000_001, "not in order"),
        ("memoryBytes", 0, "not within"),
        ("memoryBytes", 17 * GI, "not within"),
        ("memoryTotalBytes", 2**63, "not within"),
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


def test_an_answer_is_none_until_it_comes(paths: Paths) -> None:
    paths.make()
    assert read_status(paths, "a") is None

    write_status(paths, Status(claim="a", state="REFUSED", reason="full"))

    assert read_status(paths, "a") == Status(claim="a", state="REFUSED", reason="full")


def test_waiting_for_nobodys_answer_ends_with_advice(paths: Paths) -> None:
    paths.make()

    with pytest.raises(DaemonMissingError, match=r"daemon\.log"):
        wait_status(paths, "a", 0.01)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()

    with pytest.raises(OSError, match="target"):
        write_whole(tmp_path / "target", b"x")

    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_the_run_folder_is_for_its_owner_only(paths: Paths) -> None:
    paths.make()

    assert paths.root.stat().st_mode & 0o777 == 0o700
    assert paths.claims.stat().st_mode & 0o777 == 0o700


def test_a_run_folder_of_another_user_is_not_used(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.make()
    monkeypatch.setattr(os, "geteuid", lambda: paths.root.stat().st_uid + 1)

    with pytest.raises(PermissionError, match="KUBESHARE_RUN"):
        paths.make()


@pytest.mark.parametrize(
    ("variables", "uid", "folder"),
    [
        ({"KUBESHARE_RUN": "/a"}, 0, "/a"),
        ({}, 0, "/run/kubeshare"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, 7, "/run/user/7/kubeshare"),
        ({}, 7, "/dev/shm/kubeshare-7"),
    ],
)
def test_each_user_has_a_run_folder(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], uid: int, folder: str
) -> None:
    for name in ("KUBESHARE_RUN", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: uid)

    assert default_run_folder() == Path(folder)


def test_a_process_has_a_start_time_while_it_lives() -> None:
    assert process_start_time(os.getpid()) is not None
    assert process_start_time(2**22 + 1) is None


def test_a_grant_of_another_gpu_takes_nothing_away() -> None:
    live = [grant("a", 1, gpus=(GPU_B,))]

    assert shortfall(grant("b", 1), live, lambda held: held.claim) is None


def test_the_smaller_of_two_opinions_about_a_gpus_memory_counts() -> None:
    smaller = msgspec.structs.replace(grant("x").gpus[0], memory_total_bytes=2 * GI)
    live = [msgspec.structs.replace(grant("a"), gpus=(smaller,))]

    missing = shortfall(grant("b", memory=2 * GI), live, lambda held: held.claim)

    assert missing == f"{GPU_A} has 1Gi of its memory left, 2Gi is asked; held by a: 0.3, 1Gi"
