"""Records what a cluster runs into files that are always whole."""

import asyncio
from pathlib import Path
from typing import Final

from kubeshare.api.configuration import Configuration
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, GPUNode
from kubeshare.cli.trace.nodes import simulated_nodes, usual_gpu_bytes
from kubeshare.cli.trace.pseudonyms import Pseudonyms
from kubeshare.cli.trace.recorder import Counts, Recorder, only_gpus
from kubeshare.explain.cluster_reader import read_configuration
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import PODS
from kubeshare.simulator.workloads.csv_writer import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    node_row,
    write_rows,
)
from kubeshare.simulator.workloads.nodes_csv import GPU_BYTES

PERIOD_S: Final = 30.0
"""How often the file of jobs is written anew."""


async def record(client: Client, path: Path, nodes_path: Path, stop: asyncio.Event) -> Counts:
    """Record until told to stop, or until there are too many jobs.

    Args:
        client: the cluster.
        path: the file of jobs.
        nodes_path: the file of nodes, which is written first.
        stop: ends the recording.

    Raises:
        NotInstalledError: the cluster has no KubeShare.
        ApiError: it cannot be read.
        OSError: a file cannot be written.
    """
    pseudonyms = Pseudonyms()
    try:
        gpunodes = (await client.list(GPUNODES.into(GPUNode))).items
        await client.latest_version(SHAREPODS)
    except NotFoundError as error:
        raise NotInstalledError from error
    await client.latest_version(PODS)  # a role that is missing shows at once
    nodes = simulated_nodes((await client.list(core_v1.NODES)).items, gpunodes, pseudonyms)
    write_rows(nodes_path, NODE_COLUMNS, map(node_row, nodes))
    clock = asyncio.get_running_loop().time
    configuration = await read_configuration(client) or Configuration()
    unit = configuration.gpushare.unit_bytes
    recorder = Recorder(clock, pseudonyms, usual_gpu_bytes(nodes, GPU_BYTES), unit)
    sharepods = Reflector(client, SHAREPODS, transform=only_gpus("sharepods"))
    pods = Reflector(client, PODS, transform=only_gpus("pods"))
    sharepods.subscribe(recorder.handler("sharepods"))
    pods.subscribe(recorder.handler("pods"))
    tasks = [asyncio.create_task(each.run()) for each in (sharepods, pods)]
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and not recorder.full:
            write_rows(path, JOB_COLUMNS, recorder.rows())
            ended, _ = await asyncio.wait(
                (stopped, *tasks), timeout=PERIOD_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()
    finally:
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)
        write_rows(path, JOB_COLUMNS, recorder.rows())
    return recorder.counts
