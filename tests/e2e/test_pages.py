"""The commands of the pages for users do what the pages say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pages import run, script
from e2e.space import Space
from e2e.stage import SCHEDULER, Stage
from kubeshare.api.types.constants import NAMESPACE

pytestmark = pytest.mark.lab

PAGES = (
    "install",
    "ask-for-a-share",
    "plain-pods",
    "why-it-waits",
    "replace-the-scheduler",
    "pool-policies",
    "monitoring",
    "usage",
)


@pytest.fixture
def scheduler_stays(stage: Stage) -> Iterator[None]:
    """Whatever a page does and where it stops, KubeShare's scheduler is there afterwards."""
    yield
    stage.kubectl("scale", "-n", NAMESPACE, "deployment/kubeshare-scheduler", "--replicas=2")
    stage.until_ready(SCHEDULER)


@pytest.fixture
def configuration_stays(stage: Stage, space: Space) -> Iterator[None]:
    """Whatever a page configures and where it stops, the defaults are in force afterwards.

    That is before the namespace is cleared, which waits until no vGPU is kept.
    """
    yield
    stage.configure()


@pytest.mark.usefixtures("scheduler_stays", "configuration_stays")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_the_page_work(
    page: str, stage: Stage, space: Space, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(stage.lab.kubeconfig.read_bytes())
    here = f"kubectl config set-context --current --namespace={space.name}\n"
    run(stage, here + script(page), kubeconfig=kubeconfig)
