"""The commands of the pages for users do what the pages say."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.space import Space
from e2e.stage import SCHEDULER, Stage
from kubeshare.api.types.constants import NAMESPACE

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
PAGES = (
    "install",
    "ask-for-a-share",
    "plain-pods",
    "why-it-waits",
    "replace-the-scheduler",
    "pool-policies",
)
THEIR_IMAGE, OUR_IMAGE = "YOUR/kubeshare:0.1.0", "kubeshare:dev"
SECONDS = 400


def script(page: str, *sections: str) -> str:
    """All commands of a page, or of its sections, as one terminal would see them."""
    text = (ROOT / "docs" / f"{page}.md").read_text().replace(THEIR_IMAGE, OUR_IMAGE)
    if sections:
        found = dict(part.split("\n", 1) for part in text.split("\n## "))
        text = "\n".join(found[section] for section in sections)
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert blocks
    ends = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
    return "\n".join(["set -eum -o pipefail", ends, *blocks])


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
    programs = (ROOT / ".venv" / "bin", stage.lab.api.programs)
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
    }
    here = ["kubectl", "config", "set-context", "--current", f"--namespace={space.name}"]
    subprocess.run(here, env=environment, check=True, capture_output=True)

    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{stage.describe_system()}"
