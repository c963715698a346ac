"""Runs a program on a share of a GPU, and prints where it ran and what it used.

python examples/client/train.py
"""

import asyncio

from kubeshare.client import GPU, Cluster, SharePod

TRAIN = SharePod(
    name="train",
    gpu=GPU(request=0.3, limit=0.6, memory="4Gi"),
    spec={
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "kubeshare:dev",
                "command": ["burn", "--memory", "2Gi", "--seconds", "5"],
            }
        ],
    },
)


async def main(cluster: Cluster) -> None:
    """Run it to its end."""
    await cluster.create(TRAIN)
    try:
        running = await cluster.wait("train", timeout=600)
        print(f"train: on {running.node}, GPU {', '.join(gpu.id for gpu in running.gpus)}")
        ended = await cluster.wait("train", until="Succeeded", timeout=600)
        print(f"train: {ended.phase}")
    finally:
        await cluster.delete("train")
    used = await cluster.usage(since="1h", by=["owner"])
    for row in used.rows:
        print(f"{row.keys[0]}: {float(row.used_gpu_seconds):.1f} GPU-seconds")


async def connect() -> None:
    """Use the cluster of the kubeconfig."""
    async with Cluster.connect() as cluster:
        await main(cluster)


if __name__ == "__main__":
    asyncio.run(connect())
