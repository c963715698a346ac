"""Each command that shows a cluster has the same formats, and no colours in a pipe."""

import csv
import io
import json
from typing import Any

import click
import pytest
import yaml

from fakes.web.cluster import ago, small_cluster
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.cli.main import cli, main
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.resources import NODES
from kubeshare.simulator.control import FakeApiServer

COMMANDS = {
    "get": (["get", "sharepods", "-A"], ("table", "wide", "json", "yaml", "csv")),
    "inspect": (["inspect"], ("table", "wide", "json", "yaml", "csv")),
    "topo": (["topo", "gpu-a"], ("text", "json", "yaml", "svg")),
    "usage": (["usage"], ("table", "json", "yaml", "csv")),
}


def _offer(node: dict[str, Any]) -> None:
    node["status"]["allocatable"] |= {"aliyun.com/gpu-mem": "128", "aliyun.com/gpu-count": "8"}


def _choices(name: str) -> tuple[str, ...]:
    """What the option -o of a command accepts."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    [choice] = [each.type for each in command.params if each.name == "output"]
    assert isinstance(choice, click.Choice)
    return tuple(choice.choices)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FakeApiServer:
    """The small cluster, which every command reads; standard output is no terminal."""
    made = small_cluster()
    made.change(NODES, "gpu-a", "", _offer)
    monkeypatch.setattr(Client, "connect", lambda *_: made.client("user"))
    now = utc_now()
    for name in ("get", "usage"):
        monkeypatch.setattr(f"kubeshare.cli.{name}.command.utc_now", lambda: now)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    capsys.readouterr()
    return made


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    written = capsys.readouterr()
    assert not written.err
    assert "\x1b[" not in written.out
    return written.out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_formats_that_make_sense_for_it(
    name: str, server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, formats = COMMANDS[name]
    assert _choices(name) == formats
    shown = {each: printed(capsys, *arguments, "-o", each) for each in formats}
    assert json.loads(shown["json"]) == yaml.safe_load(shown["yaml"])
    assert shown["json"].count("\n") == 1
    if "csv" in formats:
        first, *rows = csv.reader(io.StringIO(shown["csv"]))
        assert rows
        assert {len(row) for row in rows} == {len(first)}
    assert printed(capsys, *arguments) == shown[formats[0]]


def test_what_is_to_be_done_next_is_said(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "get", "-A")
    assert "Next: `kubeshare explain huge -n research` says why it waits." in text
    assert main(["topo", "gpu-z"]) == 1
    assert "`kubeshare get nodes` lists the nodes that have one" in capsys.readouterr().err
    server.remove(SHARE_USAGES, "g", "research")
    assert "No account yet. One is written when" in printed(capsys, "usage")


def test_usage_since_later_than_all_accounts_says_to_go_further_back(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(account: dict[str, Any]) -> None:
        account["status"] |= {"ended": True, "observedAt": ago(minutes=60)}

    server.change(SHARE_USAGES, "g", "research", end)
    assert "give a longer --since" in printed(capsys, "usage", "--since", "1m")
