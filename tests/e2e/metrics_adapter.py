"""An adapter of external metrics, as horizontal autoscalers read them: it says what a test sets.

The API server finds it as it finds any: by an APIService, whose Service has no selector but
an EndpointSlice, and that names this process.
"""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from e2e.space import Space
from e2e.stage import Raw, Stage

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
METRIC = "requests-in-flight"

_API = f"/apis/{GROUP}/{VERSION}"
_NAME = "metrics-adapter"
_PORT = "https"


class Adapter(ThreadingHTTPServer):
    """The server.

    Attributes:
        value: of the metric, everywhere.
    """

    daemon_threads = True
    value = 0


class _Answers(BaseHTTPRequestHandler):
    server: Adapter
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == _API:
            self._answer(200, _discovery())
        elif path.startswith(f"{_API}/namespaces/") and path.endswith(f"/{METRIC}"):
            self._answer(200, _values(self.server.value))
        else:
            self._answer(404, {"kind": "Status", "apiVersion": "v1", "code": 404})

    def _answer(self, code: int, body: Raw) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing: what is asked is not what a test is about."""


def _discovery() -> Raw:
    kind = {"name": METRIC, "singularName": "", "namespaced": True, "verbs": ["get"]}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [{**kind, "kind": "ExternalMetricValueList"}],
    }


def _values(value: int) -> Raw:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    one = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": str(value)}
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "items": [one],
    }


@contextmanager
def metrics_adapter(space: Space) -> Iterator[Adapter]:
    """The adapter, for as long as the block lasts, behind a Service of the namespace."""
    stage = space.stage
    adapter = Adapter((stage.lab.layout.host_address, 0), _Answers)
    adapter.socket = _tls(stage, f"{_NAME}.{space.name}.svc").wrap_socket(
        adapter.socket, server_side=True, do_handshake_on_connect=False
    )
    served = threading.Thread(target=adapter.serve_forever, daemon=True)
    served.start()
    try:
        for manifest in _service(*adapter.server_address[:2]):
            space.create(manifest)
        stage.kubectl("create", "-f", "-", stdin=json.dumps(_api_service(space)))
        stage.kubectl("wait", f"apiservice/{VERSION}.{GROUP}", "--for=condition=Available")
        yield adapter
    finally:
        # One that nobody answers for keeps every namespace from going.
        stage.kubectl("delete", "apiservice", f"{VERSION}.{GROUP}", "--ignore-not-found")
        adapter.shutdown()
        adapter.server_close()


def _tls(stage: Stage, host: str) -> ssl.SSLContext:
    pair = stage.lab.api.authority.identity(host, _NAME, hosts=(host,))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def _service(address: object, port: object) -> list[Raw]:
    metadata = {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME},
        "spec": {"ports": [{"name": _PORT, "port": 443}]},
    }
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": _PORT, "port": port}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
    return [service, slice_]


def _api_service(space: Space) -> Raw:
    authority = space.stage.lab.api.authority.certificate.read_bytes()
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(authority).decode(),
            "service": {"name": _NAME, "namespace": space.name, "port": 443},
        },
    }
