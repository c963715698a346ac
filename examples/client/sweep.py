"""Runs one program with several settings at once, each on a quarter of a GPU.

python examples/client/sweep.py
"""

import asyncio

from kubeshare.client import GPU, Cluster, SharePod, WaitError

RATES = ("0.1", "0.01", "0.001")


def trial(number: int, rate: str) -> SharePod:
    """One of the SharePods."""
    container = {
        "name": "main",
        "image": "kubeshare:dev",
        "command": ["burn", "--memory", "1Gi", "--seconds", "5"],
        "env": [{"name": "LEARNING_RATE", "value": rate}],
    }
    return SharePod(
        name=f"trial-{number}",
        gpu=GPU(request=0.25, memory=0.25),
        labels={"sweep": "rates"},
        spec={"restartPolicy": "Never", "containers": [container]},
    )


async def run(cluster: Cluster, number: int, rate: str) -> str:
    """Run one of them to its end; returns what became of it."""
    created = await cluster.create(trial(number, rate))
    try:
        ended = await cluster.wait(created.name, until="Succeeded", timeout=600)
    except WaitError as error:
        return str(error)
    return f"{ended.name}: {ended.phase} on GPU {ended.gpus[0].id}, learning rate {rate}"


async def main(cluster: Cluster) -> None:
    """Run all of them at once."""
    trials = [run(cluster, number, rate) for number, rate in enumerate(RATES)]
    for line in await asyncio.gather(*trials):
        print(line)
    for trial in await cluster.list(labels="sweep=rates"):
        await cluster.delete(trial.name)


async def connect() -> None:
    """Use the cluster of the kubeconfig."""
    async with Cluster.connect() as cluster:
        await main(cluster)


if __name__ == "__main__":
    asyncio.run(connect())
