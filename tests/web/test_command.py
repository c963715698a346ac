"""The command `kubeshare web` as a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from deadlines import DEADLINE_S
from kubeshare.cli.main import main

PROGRAM = """
import sys
from fakes.web.cluster import small_cluster
from kubeshare.cli.main import main
from kubeshare.kube.client.client import Client

Client.connect = lambda kubeconfig, context: small_cluster().client("web")
sys.exit(main(["web", *sys.argv[1:]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_url_and_ends_at_once_with_open_streams(number: signal.Signals) -> None:
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        words, _, url = process.stdout.readline().strip().rpartition(" ")
        assert words == "The page is at"
        origin, _, token = url.partition("/#token=")
        headers = {"authorization": f"Bearer {token}"}
        with httpx2.stream(
            "GET", f"{origin}/api/stream", headers=headers, timeout=DEADLINE_S
        ) as response:
            assert response.status_code == 200
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == 0
        _, errors = process.communicate()
    assert errors == "Only who has this URL can open it. Ctrl-C ends it.\n"


@pytest.fixture(autouse=True)
def logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeshare.cli.web.configure_logging", lambda _: None)


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "kubeshare.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["web"]) == 3
    assert capsys.readouterr().err == (
        "kubeshare: the page needs Starlette and uvicorn: run `pip install 'kubeshare[web]'`\n"
    )


def test_without_a_kubeconfig_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", "--kubeconfig", f"{tmp_path}/none"]) == 3
    assert "set KUBECONFIG or pass --kubeconfig" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--policy", "nearest"], ["--port", "70000"], ["more"]])
def test_wrong_use_is_refused(wrong: list[str]) -> None:
    assert main(["web", *wrong]) == 2
