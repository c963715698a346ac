"""Runs KubeShare-DevMgr: ``python -m kubeshare.device_manager``."""

import argparse
import os
import socket
import sys

from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.policies import DEFAULT, policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.gc_tuning import freeze_live_objects
from kubeshare.kube.controller.runtime import Program, run_program
from kubeshare.kube.logs import add_level_option, configure_logging


def main() -> int:
    """Run until SIGTERM; returns 0, or 3 when the API server could not be reached."""
    parser = argparse.ArgumentParser(
        prog="kubeshare.device_manager", description="Runs until SIGTERM."
    )
    parser.add_argument("--kubeconfig", help="default: the pod's service account, or $KUBECONFIG")
    parser.add_argument(
        "--policy",
        default=DEFAULT,
        help="the scheduler's: says where a SharePod or pod would fit; default: %(default)s",
    )
    parser.add_argument("--port", type=int, default=8080, help="of /livez, /readyz and /metrics")
    parser.add_argument(
        "--placeholder-image",
        default="kubeshare:dev",
        help="of the pods that keep a GPU: any that has sh and sleep, such as this program's own",
    )
    parser.add_argument(
        "--no-election",
        action="store_true",
        help="work without the Lease, as the only replica",
    )
    add_level_option(parser)
    options = parser.parse_args()
    try:
        chosen = policy(options.policy)
    except UnknownPolicyError as error:
        parser.error(str(error))
    configure_logging(options.log_level)

    async def build() -> Program:
        return device_manager_program(
            Client.connect(options.kubeconfig),
            chosen,
            placeholder_image=options.placeholder_image,
            instance=os.environ.get("POD_NAME", socket.gethostname()),
            port=options.port,
            elect=not options.no_election,
            built=freeze_live_objects,
        )

    return run_program(build)


if __name__ == "__main__":
    sys.exit(main())
