"""Shells and kubectl complete commands, options and names of nodes."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deadlines import DEADLINE_S, eventually
from kubeshare.cli import main as front_door
from kubeshare.cli.completion import for_kubectl
from kubeshare.cli.inspect import command
from kubeshare.lab.control_plane.api_server import ApiServer

ROOT = Path(__file__).parents[2]
NODE = "completed-node"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A ``PATH`` that begins with the programs that an installation has."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, entry in scripts.items():
        module, _, function = entry.partition(":")
        start = f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\n{start}")
        program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["inspect", "--kubec"], ["--kubeconfig\tBy default $KUBECONFIG.", ":4"]),
        (["inspect", "-o", ""], ["table", "wide", "json", "yaml", "csv", ":4"]),
        (["inspect", "--output=j"], ["--output=json", ":4"]),
        (["inspect", "--kubeconfig", ""], [":0"]),
        (["plan", "frobnicate", "--frobnicate"], [":4"]),
    ],
)
def test_a_word_is_completed_with_a_directive(words: list[str], answer: list[str]) -> None:
    assert for_kubectl(front_door.cli, words).splitlines() == answer


def test_all_commands_are_offered_where_nothing_is_typed() -> None:
    for words in ([], [""]):
        *lines, directive = for_kubectl(front_door.cli, words).splitlines()
        assert [line.partition("\t")[0] for line in lines] == list(front_door.COMMANDS)
        assert directive == ":4"


def test_a_cluster_that_cannot_be_read_has_no_names(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert for_kubectl(command.inspect, ["--kubeconfig", missing, ""]) == ":4\n"


def test_bash_completes_after_the_line_of_the_page(path: str) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    [line] = [each for each in page.splitlines() if each.startswith("$ eval ")]
    asked = "COMP_WORDS=(kubeshare in); COMP_CWORD=1; _kubeshare_completion kubeshare"
    script = f'{line[2:]}\n{asked}\necho "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-ec", script],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("inspect install\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shells_script_asks_the_program_for_words(
    shell: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(["completion", shell]) == 0
    asked = f"_KUBESHARE_COMPLETE={shell}_complete"
    assert asked in capsys.readouterr().out
    variable, _, value = asked.partition("=")
    # Fish has its words in COMP_WORDS, and the one to complete in COMP_CWORD.
    words = {"COMP_WORDS": "kubeshare un", "COMP_CWORD": "un" if shell == "fish" else "1"}
    answered = subprocess.run(
        ["kubeshare"],
        env=os.environ | {"PATH": path, variable: value} | words,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout
    assert "uninstall" in answered


def test_a_shell_that_is_not_known_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["completion", "csh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.fixture
def node(apiserver: ApiServer) -> Iterator[str]:
    """A node that offers GPU memory, beside one that does not."""
    names = (NODE, f"{NODE}-without")
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
    apiserver.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(nodes))
    offered = {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
    patch = json.dumps({"status": {"allocatable": offered, "capacity": offered}})
    apiserver.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)
    yield NODE
    for name in names:
        apiserver.kubectl("delete", "node", name)


@pytest.mark.apiserver
def test_kubectl_runs_the_plugins_without_a_warning(apiserver: ApiServer, path: str) -> None:
    # It also warns of folders that do not exist, such as the machine may have in its own.
    there = ":".join(each for each in path.split(":") if Path(each).is_dir())

    def kubectl(*words: str) -> tuple[str, str]:
        done = subprocess.run(
            [apiserver.programs / "kubectl", *words],
            env=os.environ | {"PATH": there, "KUBECONFIG": str(apiserver.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        return done.stdout, done.stderr

    listed, errors = kubectl("plugin", "list", "--name-only")
    assert {"kubectl-kubeshare", "kubectl-inspect-gpushare"} <= set(listed.split())
    assert errors == ""
    text, errors = kubectl("kubeshare", "doctor", "--help")
    assert text.startswith("Usage: kubectl kubeshare doctor")
    assert errors == ""


@pytest.mark.apiserver
def test_kubectl_finds_the_completion_of_the_plugins(
    apiserver: ApiServer, node: str, path: str
) -> None:
    def completed(*words: str) -> str:
        return subprocess.run(
            [apiserver.programs / "kubectl", "__complete", *words],
            env=os.environ | {"PATH": path, "KUBECONFIG": str(apiserver.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        ).stdout

    def names_the_node() -> bool:
        return completed("inspect", "gpushare", "comp") == f"{node}\n:4\n"

    eventually(names_the_node, "a completion that the busy machine has in time")
    assert completed("inspect", "gpushare", "-o", "js") == "json\n:4\n"
    assert completed("kubeshare", "uni").startswith("uninstall\t")
