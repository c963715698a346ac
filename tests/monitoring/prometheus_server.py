"""A real Prometheus that scrapes what the real programs serve, with the deployed configuration."""

import contextlib
import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import CONTENT_TYPE_LATEST

from deadlines import DEADLINE_S
from fakes.node import NODE
from kubeshare.api.types.constants import NAMESPACE
from monitoring.prometheus_tools import program
from tokens.program import listening_port

MONITORING: Final = Path(__file__).parents[2] / "deploy" / "monitoring"
_POLL_S: Final = 0.1
_POD: Final = "__meta_kubernetes_pod"


class Prometheus:
    """A server that runs.

    Args:
        port: on this machine.
    """

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

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


@contextlib.contextmanager
def prometheus(texts: Mapping[str, str], folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with the deployed rules and relabelling.

    Args:
        texts: component of KubeShare -> the text of its metrics.
        folder: for its configuration and data.
    """
    with _served(texts) as port:
        config = folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(_configuration(texts, port)))
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
            while (own := listening_port(running.pid)) is None:
                assert running.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(_POLL_S)
            yield Prometheus(own)
        finally:
            running.kill()
            running.wait()


def _configuration(texts: Mapping[str, str], port: int) -> dict[str, Any]:
    """The deployed one, which finds the programs here instead of in a cluster."""
    found: dict[str, Any] = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    [job] = found["scrape_configs"]
    del job["kubernetes_sd_configs"]
    job["static_configs"] = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "__metrics_path__": f"/{component}",
                "__meta_kubernetes_namespace": NAMESPACE,
                f"{_POD}_name": f"kubeshare-{component}-1",
                f"{_POD}_node_name": NODE,
                f"{_POD}_phase": "Running",
                f"{_POD}_container_port_name": "metrics",
                f"{_POD}_label_app_kubernetes_io_part_of": "kubeshare",
                f"{_POD}_label_app_kubernetes_io_component": component,
            },
        }
        for component in texts
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
