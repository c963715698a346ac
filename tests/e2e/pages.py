"""Runs the commands of the pages for users, as one terminal would."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from e2e.stage import Stage

ROOT: Final = Path(__file__).parents[2]
_THEIR_IMAGE: Final = "YOUR/kubeshare:0.1.0"
_OUR_IMAGE: Final = "kubeshare:dev"
_SECONDS: Final = 400


def script(page: str, *sections: str) -> str:
    """All commands of a page, or of its sections with these headings."""
    text = (ROOT / "docs" / f"{page}.md").read_text().replace(_THEIR_IMAGE, _OUR_IMAGE)
    if sections:
        text = "\n".join(_section(text, heading) for heading in sections)
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert blocks
    ends = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
    return "\n".join(["set -eum -o pipefail", ends, *blocks])


def _section(text: str, heading: str) -> str:
    """What is below a heading, up to the next one of its level."""
    found = re.search(rf"^(##+) {re.escape(heading)}$", text, flags=re.MULTILINE)
    assert found, heading
    below = text[found.end() :]
    return re.split(rf"^#{{2,{len(found[1])}}} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def environment(stage: Stage, kubeconfig: Path | None = None, **variables: str) -> dict[str, str]:
    """The environment of commands that the administrator of a lab runs.

    Args:
        stage: the lab.
        kubeconfig: a copy of the lab's, for commands that change it.
        variables: others of the shell.
    """
    programs = (ROOT / ".venv" / "bin", stage.lab.api.programs)
    path = ":".join([*map(str, programs), os.environ["PATH"]])
    return (
        os.environ
        | {"KUBECONFIG": str(kubeconfig or stage.lab.kubeconfig), "PATH": path}
        | variables
    )


def run(stage: Stage, commands: str, *, kubeconfig: Path | None = None, **variables: str) -> str:
    """Run commands of bash in this clone, in :func:`environment`; returns what they print."""
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=ROOT,
        env=environment(stage, kubeconfig, **variables),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{stage.describe_system()}"
    return done.stdout
