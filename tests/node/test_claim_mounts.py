"""The claims that a process has mounted, by the kernel's list of its mounts."""

import os
from pathlib import Path

from kubeshare.node.claim_mounts import ClaimMounts

CLAIMS = Path("/run/kubeshare/claims")
# What the node agent's own container sees: the host's /run is a tmpfs.
OWN = """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:25 /kubeshare /run/kubeshare rw,nosuid shared:5 - tmpfs tmpfs rw
"""
ROOT = "5 4 0:99 / / rw - overlay overlay rw"
CLAIM = "6 5 0:25 /kubeshare/claims/a-uid /run/kubeshare/claim ro,nosuid - tmpfs tmpfs rw"


def claims(*lines: str, own: str = OWN) -> tuple[str, ...]:
    return ClaimMounts(CLAIMS, own).in_mountinfo("\n".join(lines) + "\n")


def test_the_claim_of_a_container_is_found() -> None:
    assert claims(ROOT, CLAIM) == ("a-uid",)
    assert claims(ROOT) == ()
    assert claims("", "?", ROOT) == ()


def test_wherever_it_is_mounted() -> None:
    assert claims(ROOT, CLAIM.replace(" /run/kubeshare/claim ", " /elsewhere ")) == ("a-uid",)


def test_a_container_may_have_several() -> None:
    assert claims(CLAIM, CLAIM, CLAIM.replace("a-uid", "b-uid")) == ("a-uid", "b-uid")


def test_a_folder_of_that_name_elsewhere_is_none() -> None:
    volume = "/var/lib/kubelet/pods/1/volumes/claims/a-uid"
    assert claims(f"6 5 8:1 {volume} /run/kubeshare/claim rw - ext4 /dev/sda1 rw") == ()
    assert claims(CLAIM.replace("0:25", "0:26")) == ()
    assert claims(CLAIM.replace("/kubeshare/claims", "/kubeshare/other")) == ()


def test_the_folder_of_all_claims_and_one_within_a_claim_are_none() -> None:
    assert claims(CLAIM.replace("claims/a-uid", "claims"), CLAIM.replace("a-uid", "a-uid/x")) == ()


def test_a_run_folder_of_its_own_file_system_and_one_on_the_root_are_known() -> None:
    own = "2 1 0:7 / /run/kubeshare rw - tmpfs tmpfs rw\n"
    assert claims(CLAIM.replace("0:25 /kubeshare", "0:7 "), own=own) == ("a-uid",)
    own = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
    assert claims(CLAIM.replace("0:25 /kubeshare", "8:1 /run/kubeshare"), own=own) == ("a-uid",)


def test_the_later_of_two_mounts_at_one_place_counts() -> None:
    own = OWN + "3 2 0:40 / /run/kubeshare rw - tmpfs tmpfs rw\n"
    assert claims(CLAIM, own=own) == ()
    assert claims(CLAIM.replace("0:25 /kubeshare", "0:40 "), own=own) == ("a-uid",)


def test_a_space_in_a_path_is_escaped() -> None:
    own = "2 1 0:25 /my\\040run /run/kubeshare rw - tmpfs tmpfs rw\n"
    assert claims(CLAIM.replace("/kubeshare/claims", r"/my\040run/claims"), own=own) == ("a-uid",)


def test_all_processes_of_the_machine_are_asked(tmp_path: Path) -> None:
    for pid, namespace, text in ((1, "mnt:[1]", ROOT), (7, "mnt:[2]", CLAIM), (8, "mnt:[2]", "")):
        folder = tmp_path / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/mnt").symlink_to(namespace)
        (folder / "mountinfo").write_text(text + "\n")
    pod = "01234567-89ab-cdef-0123-456789abcdef"
    (tmp_path / "7/cgroup").write_text(f"0::/kubepods/pod{pod}/{'0' * 64}/pod{pod[::-1]}\n")
    (tmp_path / "8/mountinfo").unlink()  # of the same namespace as the other
    (tmp_path / "9").mkdir()  # it has ended
    (tmp_path / "cpuinfo").write_text("")

    mounts = ClaimMounts(CLAIMS, OWN, tmp_path)

    assert mounts.of_all_processes() == {"a-uid": {pod}}
    assert mounts.of_process(7) == ("a-uid",)


def test_on_this_machine_no_process_has_a_claim_of_this_folder(tmp_path: Path) -> None:
    mounts = ClaimMounts(tmp_path / "claims")
    assert mounts.of_process(os.getpid()) == ()
    assert mounts.of_all_processes() == {}
