"""``python -m kubeshare.extender``: the scheduler extender as a program of its own."""

import argparse
import os
import socket
import sys
from pathlib import Path

from kubeshare.extender.http.access import TokenFile
from kubeshare.extender.program import Serving, extender_program
from kubeshare.kube.certificates import AccessError, Certificates
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.gc_tuning import freeze_live_objects
from kubeshare.kube.controller.runtime import Program, run_program
from kubeshare.kube.logs import add_level_option, configure_logging


def main() -> int:
    """Run until SIGTERM.

    Returns:
        the exit code: 0, or 3 when the API server could not be reached.
    """
    parser = argparse.ArgumentParser(prog="kubeshare.extender", description="Runs until SIGTERM.")
    parser.add_argument("--kubeconfig", help="default: the pod's service account, or $KUBECONFIG")
    parser.add_argument("--port", type=int, default=12345, help="for kube-scheduler")
    parser.add_argument(
        "--health-port", type=int, default=8080, help="of /livez, /readyz and /metrics"
    )
    parser.add_argument("--tls-cert", type=Path, help="certificate chain; default: plain HTTP")
    parser.add_argument("--tls-key", type=Path, help="its private key")
    parser.add_argument("--client-ca", type=Path, help="clients need a certificate of these CAs")
    parser.add_argument("--token-file", type=Path, help="clients send the token in this file")
    add_level_option(parser)
    options = parser.parse_args()
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key come together")
    if options.client_ca and not options.tls_cert:
        parser.error("--client-ca needs --tls-cert and --tls-key")
    try:
        token = TokenFile(options.token_file) if options.token_file else None
        certificates = (
            Certificates(options.tls_cert, options.tls_key, options.client_ca)
            if options.tls_cert
            else None
        )
    except AccessError as error:
        parser.error(str(error))
    configure_logging(options.log_level)

    async def build() -> Program:
        tls = certificates.context if certificates else None
        program = extender_program(
            Client.connect(options.kubeconfig),
            instance=os.environ.get("POD_NAME", socket.gethostname()),
            port=options.health_port,
            serving=Serving(options.port, tls, token),
            built=freeze_live_objects,
        ).program
        if certificates:
            program.add_task(certificates.run)
        return program

    return run_program(build)


if __name__ == "__main__":
    sys.exit(main())
