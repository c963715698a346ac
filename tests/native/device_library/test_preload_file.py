"""The library comes by /etc/ld.so.preload, as in a container: in a mount namespace of its own."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.session import FakeSession, Machine, Probe
from kubeshare import native

# Namespaces, which not every machine lets every user make.
pytestmark = [pytest.mark.native, pytest.mark.slow]

NOT_PERMITTED = 800
WHERE_CONTAINERS_HAVE_IT = "/run/kubeshare/claim"


def start(
    machine: Machine, folder: Path, environment: Mapping[str, str], *, mounted: Path | None = None
) -> Probe:
    """Starts a probe with nothing but `environment`, and the library in the preload file."""
    upper, work = folder / "upper", folder / "work"
    upper.mkdir()
    work.mkdir()
    given = {**machine.environment(), **environment}
    probe = [str(native.path("tests/probe")), "dlsym"]
    steps = [
        f"mount -t overlay none -o lowerdir=/etc,upperdir={upper},workdir={work} /etc",
        f"echo {machine.library} > /etc/ld.so.preload",
        "mount -t tmpfs none /run",
        f"mkdir -p {WHERE_CONTAINERS_HAVE_IT}",
        f"mount --bind {mounted} {WHERE_CONTAINERS_HAVE_IT}"
        if mounted is not None
        else f"rmdir {WHERE_CONTAINERS_HAVE_IT}",
        shlex.join(["exec", "env", "-i", *(f"{key}={given[key]}" for key in given), *probe]),
    ]
    command = ["/usr/bin/unshare", "--map-root-user", "--mount", "sh", "-ec", "\n".join(steps)]
    return machine.run(command, {}, preload="")


def test_a_program_without_any_environment_is_held(machine: Machine, folder: Path) -> None:
    with start(machine, folder, {}) as probe:
        probe.do("init", expect=NOT_PERMITTED)


def test_a_claim_is_named_by_the_environment_only_where_none_is_mounted(
    machine: Machine, folder: Path, session: FakeSession
) -> None:
    with start(machine, folder, session.environment) as probe:
        probe.do("init")


def test_a_mounted_claim_cannot_be_exchanged_for_another_one(
    machine: Machine, folder: Path, session: FakeSession
) -> None:
    empty = folder / "of-nobody"
    empty.mkdir()
    with start(machine, folder, session.environment, mounted=empty) as probe:
        probe.do("init", expect=NOT_PERMITTED)
