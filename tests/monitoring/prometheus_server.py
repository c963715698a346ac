"""A real Prometheus that scrapes what the real programs serve, with the deployed configuration."""

import contextlib
import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from prometheus_client import CONTENT_TYPE_LATEST

from deadlines import DEADLINE_S
from fakes.node import NODE
from kubeshare.api.types.constants import NAMESPACE
from monitoring.prometheus_tools import program
from tokens.program import listening_port

MONITORING: Final = Path(__file__).parents[2] / "deploy" / "chart" / "kubeshare" / "monitoring"
_POLL_S: Final = 0.1
_POD: Final = "__meta_kubernetes_pod"


class Prometheus:
    """A server that runs.

    Args:
        port: on this machine.
    """

    def __init__(self, port: int) -> None:
        self._server = f"http://127.0.0.1:{port}"
        self._url = f"{self._server}/api/v1"

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            urllib.request.urlopen(f"{self._server}/-/ready", timeout=DEADLINE_S).close()
        except urllib.error.HTTPError:
            return False
        return True

    def ask(self, path: str, **parameters: str) -> Any:
        """What the API returns under ``data``."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/{path}?{query}", timeout=DEADLINE_S) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """The present values of an expression, one a series."""
        found = self.ask("query", query=expression)["result"]
        return [float(series["value"][1]) for series in found]

    def until(self, expression: str) -> list[float]:
        """Wait until an expression has a value; returns its values."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := self.values(expression)):
            assert time.monotonic() < deadline, f"no data: {expression}"
            time.sleep(_POLL_S)
        return found


class Target(NamedTuple):
    """A program of KubeShare: its pod, and where its metrics are served."""

    component: str
    pod: str
    node: str
    address: str
    path: str


@contextlib.contextmanager
def prometheus(texts: Mapping[str, str], folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with the deployed rules and relabelling on metrics that are served here.

    Args:
        texts: component of KubeShare -> the text of its metrics.
        folder: for its configuration and data.
    """
    with _served(texts) as port:
        targets = [
            Target(each, f"kubeshare-{each}-1", NODE, f"127.0.0.1:{port}", f"/{each}")
            for each in texts
        ]
        with scraping(targets, folder) as found:
            yield found


@contextlib.contextmanager
def scraping(targets: Iterable[Target], folder: Path, **job: Any) -> Iterator[Prometheus]:
    """Run Prometheus with the deployed rules and relabelling.

    Args:
        targets: what it scrapes.
        folder: for its configuration and data.
        job: further members of the scrape configuration.
    """
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_configuration(targets, job)))
    command = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    log = folder / "log"
    with log.open("w") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while (own := listening_port(running.pid)) is None or not Prometheus(own).is_ready():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(_POLL_S)
        yield Prometheus(own)
    finally:
        running.kill()
        running.wait()


def _configuration(targets: Iterable[Target], job_members: dict[str, Any]) -> dict[str, Any]:
    """The deployed one, which is told of the programs instead of finding them in a cluster."""
    found: dict[str, Any] = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    [job] = found["scrape_configs"]
    del job["kubernetes_sd_configs"]
    job |= job_members
    job["static_configs"] = [
        {
            "targets": [target.address],
            "labels": {
                "__metrics_path__": target.path,
                "__meta_kubernetes_namespace": NAMESPACE,
                f"{_POD}_name": target.pod,
                f"{_POD}_node_name": target.node,
                f"{_POD}_phase": "Running",
                f"{_POD}_container_port_name": "metrics",
                f"{_POD}_label_app_kubernetes_io_part_of": "kubeshare",
                f"{_POD}_label_app_kubernetes_io_component": target.component,
            },
        }
        for target in targets
    ]
    found["rule_files"] = [str(MONITORING / "rules" / "*.yaml")]
    found["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return found


@contextlib.contextmanager
def _served(texts: Mapping[str, str]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = texts[self.path.strip("/")].encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
