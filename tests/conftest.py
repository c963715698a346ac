"""Shared by all tests: hypothesis profiles, one API server, and rules for the order of tests."""

import gc
import os
import signal
import zlib
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from few_examples import drawing_few, limit_examples
from kubeshare import native
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server
from kubeshare.lab.progress import Progress
from labs import CLUSTER, booted_lab
from plain_kubectl import PlainApiServer

# How long it takes to draw an example, or to try it, depends on what else the machine does.
settings.register_profile(
    "untimed", deadline=None, print_blob=True, suppress_health_check=(HealthCheck.too_slow,)
)
_UNTIMED = settings.get_profile("untimed")
settings.register_profile("same", _UNTIMED, derandomize=True)
settings.register_profile("fresh", _UNTIMED, derandomize=False)
# For `make test-fast`: its numbers are where it is asked for.
settings.register_profile("few", settings.get_profile("same"))
settings.load_profile("same")


LAB_ORDER = (
    "lab/test_lab_is_gone.py",  # boots labs of its own
    "e2e/test_kinds_of_nodes.py",  # too: before the lab that the others share
    "lab/test_lab.py",  # before KubeShare is installed on the lab
    "e2e/owned/",
    "e2e/owned/test_rebooting.py",  # a minute goes by until its node is owned again
    "e2e/",
    "e2e/test_what_the_programs_asked.py",  # what all tests before caused
    "e2e/test_what_the_programs_said.py",
    "e2e/test_restored.py",  # an API server that starts refuses for a moment what is allowed
)
"""The order of the tests in the lab, which follow all others: a lab disturbs who measures time."""


def pytest_configure() -> None:
    """End as by Ctrl-C when somebody ends the run: what the fixtures started goes with it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten names of tests on long texts: each worker sends all names, and each report one."""
    if not isinstance(val, str | bytes) or len(val) <= 200:
        return None
    data = val.encode(errors="surrogatepass") if isinstance(val, str) else val
    return f"{val[:40]!r} of {len(val)}, {zlib.crc32(data):08x}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests in order: one API server a run, one lab a run, and its logs read at the end.

    Of those that run in parallel the slow ones come first, so that none is left over at the end.
    """
    for item in items:
        if item.get_closest_marker("apiserver"):
            item.add_marker(pytest.mark.xdist_group("apiserver"))
        elif "apiserver" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid} uses the API server: mark it apiserver")
    items.sort(key=_place)
    if drawing_few():
        limit_examples(items, examples=30, episodes=20)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through thousands of tests and modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _place(item: pytest.Item) -> int:
    if not item.get_closest_marker("lab"):
        first = item.get_closest_marker("apiserver") or item.get_closest_marker("slow")
        return -2 if first else -1
    path = item.path.as_posix()
    matching = [part for part in LAB_ORDER if f"/tests/{part}" in path]
    if not matching:
        raise pytest.UsageError(f"{item.nodeid} is marked lab: tests/lab and tests/e2e have these")
    return LAB_ORDER.index(max(matching, key=len))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say what to do where the native programs were never built."""
    if item.get_closest_marker("native") and not native.folder().is_dir():
        pytest.fail(f"{native.folder()} does not exist: run `make native`", pytrace=False)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A booted lab of two nodes with two V100 each, shared by most tests; down at the end."""
    with booted_lab(CLUSTER, Shape(nodes=2, gpus="V100x2")) as booted:
        yield booted


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A real etcd and kube-apiserver with RBAC, on the loopback (mark: ``apiserver``).

    There is no controller manager: default ServiceAccounts are not created and
    nothing is garbage collected. Each test uses a namespace of its own. One worker of
    pytest-xdist has it: a second one fails, as their tests were not grouped.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        try:
            (tmp_path_factory.getbasetemp().parent / "apiserver").touch(exist_ok=False)
        except FileExistsError:
            pytest.fail("a second worker has tests on the API server: run with --dist=loadgroup")
    with local_api_server(Progress()) as server:
        yield PlainApiServer(server.settings, server.programs)
