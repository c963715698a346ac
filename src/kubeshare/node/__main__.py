"""``python -m kubeshare.node`` runs the node agent until SIGTERM."""

import argparse
import os
import sys
from pathlib import Path

import structlog

from kubeshare import native
from kubeshare.kube.controller.runtime import EXIT_UNREACHABLE, Program, run_program
from kubeshare.kube.logs import add_level_option, configure_logging
from kubeshare.node import lock, run_mount
from kubeshare.node.agent import Settings, build
from kubeshare.node.escapes.policy import POLICIES
from kubeshare.node.library import LibraryError, install
from kubeshare.node.paths import NodePaths
from kubeshare.node.run_mount import HostMounter

log = structlog.get_logger(__name__)

_ROOT = Path("/")


def main() -> int:
    """Read the command line and run the agent; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m kubeshare.node",
        description="KubeShare's node agent: publishes this node's GPUs, and attaches "
        "shares of them to pods as the DRA driver vgpu.kubeshare.nthu.",
    )
    parser.add_argument(
        "--node", default=os.environ.get("NODE_NAME", ""), help="this node's name [NODE_NAME]"
    )
    parser.add_argument(
        "--driver-root",
        type=Path,
        default=Path("/run/nvidia/driver"),
        help="folder below which the GPU driver is installed (default %(default)s)",
    )
    parser.add_argument(
        "--root", type=Path, default=_ROOT, help="where the node's file system is mounted (/)"
    )
    parser.add_argument(
        "--escapes",
        choices=POLICIES,
        default="report",
        help="what to do, besides reporting it, about a process of a pod with a share that uses "
        "a GPU without the device library, or more memory than its limit, on nodes without the "
        "label kubeshare.nthu/escapes (default %(default)s)",
    )
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG, or the pod's own account")
    parser.add_argument("--port", type=int, help="serve /livez, /readyz and /metrics there")
    add_level_option(parser)
    arguments = parser.parse_args()
    if not arguments.node:
        parser.error("the node is not known: set NODE_NAME (by the downward API) or pass --node")
    configure_logging(arguments.log_level)
    paths = NodePaths(arguments.root)
    try:
        library = install(native.path(native.DEVICE_LIBRARY), paths.library_folder)
    except (native.NativeMissingError, LibraryError) as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400 - not an error of the program
        return EXIT_UNREACHABLE
    settings = Settings(
        node=arguments.node,
        paths=paths,
        driver_root=arguments.driver_root,
        library=library,
        escapes=arguments.escapes,
        kubeconfig=arguments.kubeconfig,
        port=arguments.port,
        mounter=HostMounter() if arguments.root == _ROOT else None,
    )
    return _run(settings)


def _run(settings: Settings) -> int:
    is_only_agent = False

    async def start() -> Program:
        nonlocal is_only_agent
        # Held until the process ends, however it ends.
        await lock.acquire(settings.paths.lock)
        is_only_agent = True
        return await build(settings)

    return_code = run_program(start)
    if is_only_agent and return_code == 0 and settings.mounter is not None:
        run_mount.take_away(settings.paths.run_folder, settings.mounter)
    return return_code


if __name__ == "__main__":
    sys.exit(main())
