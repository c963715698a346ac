"""``python -m kubeshare.web``: the page in the cluster, for many users."""

import argparse
import asyncio
import os
import ssl
import sys
from pathlib import Path

import structlog

from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.policies import policy
from kubeshare.kube.certificates import AccessError, Certificates
from kubeshare.kube.logs import add_level_option, configure_logging
from kubeshare.web.in_cluster.program import MOST_VIEWERS, Settings, serve, token_client
from kubeshare.web.server import PortTakenError

log = structlog.get_logger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM.

    Returns:
        the exit code: 0, or 3 when a port is in use.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key come together")
    if (options.tls_cert is None) != options.insecure_http:
        parser.error(
            "give --tls-cert and --tls-key, or else --insecure-http, where only an Ingress that "
            "has TLS itself reaches this port: tokens are sent to it"
        )
    if not 1 <= options.viewers <= MOST_VIEWERS:
        parser.error(f"--viewers is a number from 1 to {MOST_VIEWERS}")
    try:
        chosen = policy(options.policy) if options.policy else None
        certificates = Certificates(options.tls_cert, options.tls_key) if options.tls_cert else None
        context = ssl.create_default_context(cafile=options.ca_file)
        connect = token_client(options.server or _server(), context)
        connect("")  # the address is wrong now, or never
    except OSError as error:  # ssl.SSLError is one
        parser.error(f"--ca-file {options.ca_file}: {error.strerror or error}")
    except (AccessError, UnknownPolicyError, ValueError) as error:
        parser.error(str(error))
    configure_logging(options.log_level)
    settings = Settings(
        hosts=tuple(options.host),
        port=options.port,
        health_port=options.health_port,
        viewers=options.viewers,
        certificates=certificates,
    )
    code = 0
    try:
        asyncio.run(serve(connect, chosen, settings))
    except* (PortTakenError, OSError) as errors:
        log.error("cannot go on", error="; ".join(map(str, errors.exceptions)))  # noqa: TRY400
        code = PortTakenError.exit_code
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubeshare.web", description="Runs until SIGTERM.")
    parser.add_argument(
        "--host", action="append", required=True, help="a name by which browsers reach the page"
    )
    parser.add_argument("--port", type=int, default=8443, help="of the page")
    parser.add_argument("--health-port", type=int, default=8080, help="of /livez and /readyz")
    parser.add_argument("--tls-cert", type=Path, help="certificate chain")
    parser.add_argument("--tls-key", type=Path, help="its private key")
    parser.add_argument(
        "--insecure-http", action="store_true", help="plain HTTP, behind an Ingress with TLS"
    )
    parser.add_argument("--viewers", type=int, default=16, help="sessions at once")
    parser.add_argument("--policy", help="default: the scheduler's, as far as viewers may read it")
    parser.add_argument("--server", help="of the API; by default that of the pod's cluster")
    parser.add_argument(
        "--ca-file", help="authorities of the API server; by default those of the system"
    )
    add_level_option(parser)
    return parser


def _server() -> str:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host:
        raise ValueError("this is no pod: give --server, the address of the API server")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


if __name__ == "__main__":
    sys.exit(main())
