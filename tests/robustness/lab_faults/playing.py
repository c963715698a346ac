"""Plays a life on the lab, and strikes some of its writes."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from e2e.space import REST, Space
from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from robustness.fault_matrix.matrix import Tally
from robustness.lab_faults.programs import ACCOUNTS, Programs
from robustness.lab_faults.proxy import Proxy, kubeconfig_through
from robustness.lab_faults.troubles import KILLING, TROUBLES
from robustness.lab_faults.watcher import Watcher

STEP_SECONDS: Final = 180.0
"""Seconds that each step of a life may take."""
WRITES_A_RUN: Final = 7
"""How many writes of one run meet its trouble."""
AGENTS: Final = "agents"
LOG_CHARACTERS: Final = 4000
"""How many characters of the programs' logs a failure shows."""
_REPLICAS: Final = 2


class Troubled(NamedTuple):
    """A lab whose programs reach the API server through the proxy only."""

    space: Space
    proxy: Proxy
    programs: Programs


class Run(NamedTuple):
    """One run of the life: the trouble, and the writes (from 1) that meet it."""

    trouble: str
    writes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.trouble}, writes {', '.join(map(str, self.writes))}"


@contextmanager
def troubled(space: Space) -> Iterator[Troubled]:
    """Have the programs of a lab work through a proxy meanwhile."""
    stage = space.stage
    layout, api = stage.lab.layout, stage.lab.api
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        # Pods do not reach this machine; they and it both reach the control plane.
        init = stage.lab.control_plane.init()
        assert init is not None, "the lab is up"
        network = Path(f"/proc/{init.pid}/ns/net")
        proxy = Proxy(api.authority, api.settings.url, layout.api_address, network)
        stack.callback(proxy.stop)
        kubeconfigs = {}
        for name, account in ACCOUNTS.items():
            user = f"system:serviceaccount:{NAMESPACE}:{account}"
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
            original = api.kubeconfig_for(user, groups)
            identity = api.authority.identity(original.stem, user, groups)
            url = f"https://{layout.api_address}:{proxy.add_route(name, identity)}"
            kubeconfigs[name] = kubeconfig_through(original, folder / name, url)
        stack.enter_context(_without_deployments(stage))
        stack.enter_context(_agents_through(stage, layout.api_address, proxy.add_route(AGENTS)))
        programs = Programs(kubeconfigs, folder)
        stack.callback(programs.stop)
        yield Troubled(space, proxy, programs)


def count_writes(lab: Troubled) -> tuple[int, int]:
    """Play the life without trouble: how many writes it has, and how many without the agents'."""
    counts = []
    for only in (None, tuple(ACCOUNTS)):
        lab.proxy.arm(only=only)
        _run_life(lab)
        counts.append(lab.proxy.writes)
    return counts[0], counts[1]


def runs(writes: int, writes_of_two: int, rounds: int) -> Iterator[Run]:
    """Some runs with each trouble, so that all writes are met in turn.

    Args:
        writes: of the life.
        writes_of_two: those of scheduler and device manager.
        rounds: how often each trouble comes.
    """
    for number, trouble in enumerate(TROUBLES):
        of = writes_of_two if trouble in KILLING else writes
        step = of // WRITES_A_RUN
        for turn in range(rounds):
            first = 1 + (number + turn * len(TROUBLES)) % step
            yield Run(trouble, tuple(first + each * step for each in range(WRITES_A_RUN)))


def play(
    lab: Troubled, chosen: Sequence[Run], say: Callable[[str], object] = lambda _: None
) -> Tally:
    """Play the life with its troubles; how the points went."""
    total = Tally()
    for run in chosen:
        began = time.monotonic()
        tally = _play(lab, run)
        say(f"{run}: {tally} ({time.monotonic() - began:.0f} s)")
        total.add(tally)
        if tally.stuck:
            break  # what it has left would be in the way of the next
    return total


def _play(lab: Troubled, run: Run) -> Tally:
    trouble = TROUBLES[run.trouble]
    only = tuple(ACCOUNTS) if run.trouble in KILLING else None
    tally, stuck = Tally(), ""
    lab.proxy.arm(run.writes, lambda writer: trouble(lab.proxy, lab.programs, writer), only=only)
    with Watcher(lab.space.stage) as watcher:
        try:
            _run_life(lab)
        except AssertionError as error:
            stuck = str(error)
    tally.tried = lab.proxy.struck
    tally.struck[run.trouble] = tally.showed[run.trouble] = lab.proxy.struck
    left = watcher.left(lab.space.name)
    if stuck:
        tally.stuck.append(f"{run}: {stuck}; left: {left}")
    elif left:
        tally.leaked.append(f"{run}: {left}")
    tally.overcommitted += [f"{run}: {wrong}" for wrong in watcher.overcommitted]
    tally.converged = 0 if tally.wrong else tally.tried
    return tally


def _run_life(lab: Troubled) -> None:
    """Play the life.

    Raises:
        AssertionError: something never came true; with the end of the programs' logs.
    """
    try:
        _live(lab.space)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{lab.programs.said()[-LOG_CHARACTERS:]}") from error


def _live(space: Space) -> None:
    """Two share a GPU, two have one each; one leaves, another comes, all go."""
    for name, gpu in {
        "a": {"request": "0.5", "affinity": "pair"},
        "b": {"request": "0.5", "affinity": "pair"},
        "c": {"request": "0.7"},
        "d": {"request": "0.7"},
    }.items():
        space.share(name, gpu | {"memory": "64Mi"}, REST)
    places = {name: space.ready(name, seconds=STEP_SECONDS) for name in "abcd"}
    assert places["a"] == places["b"]
    assert len(set(places.values())) == len("abcd") - 1
    space.delete("sharepod", "d")
    space.share("e", {"request": "0.7", "memory": "64Mi"}, REST)
    space.ready("e", seconds=STEP_SECONDS)
    space.stage.kubectl("delete", "sharepods", "-n", space.name, "--all", "--wait=false")
    watcher = Watcher(space.stage)
    eventually(
        lambda: not watcher.left(space.name),
        "all to be gone",
        seconds=STEP_SECONDS,
        explain=lambda: str(watcher.left(space.name)),
    )


@contextmanager
def _without_deployments(stage: Stage) -> Iterator[None]:
    """Without the scheduler and the device manager that run in the lab."""
    for component in (SCHEDULER, DEVICE_MANAGER):
        for pod in stage.system_pods(component):
            stage.keep_log(pod["metadata"]["name"])
        _scale(stage, component, 0)
    try:
        yield
    finally:
        for component in (SCHEDULER, DEVICE_MANAGER):
            _scale(stage, component, _REPLICAS)
        for component in (SCHEDULER, DEVICE_MANAGER):
            stage.until_ready(component)


def _scale(stage: Stage, component: str, replicas: int) -> None:
    deployment = f"deployment/kubeshare-{component}"
    stage.kubectl("scale", "-n", NAMESPACE, deployment, f"--replicas={replicas}")
    eventually(lambda: len(stage.system_pods(component)) == replicas, f"{replicas} of {component}")


@contextmanager
def _agents_through(stage: Stage, address: str, port: int) -> Iterator[None]:
    """Have the node agents ask another address for the API server."""
    way = {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": str(port)}
    _set_environment(stage, *(f"{name}={value}" for name, value in way.items()))
    try:
        yield
    finally:
        _set_environment(stage, *(f"{name}-" for name in way))


def _set_environment(stage: Stage, *words: str) -> None:
    before = stage.containers(NODE_AGENT)
    for pod in stage.system_pods(NODE_AGENT):
        stage.keep_log(pod["metadata"]["name"])
    program = f"daemonset/kubeshare-{NODE_AGENT}"
    stage.kubectl("set", "env", "-n", NAMESPACE, program, *words)
    stage.kubectl("rollout", "status", "-n", NAMESPACE, program, "--timeout=180s")
    stage.until_ready(NODE_AGENT, but=before)
