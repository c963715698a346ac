"""Says why SharePods of a namespace wait, and what would let them in; without asyncio.

python examples/client/pending.py
"""

from kubeshare.client import SyncCluster


def main(cluster: SyncCluster) -> None:
    """Print what waits."""
    for sharepod in cluster.list():
        blocker = sharepod.blocker
        if blocker is None or sharepod.phase == "Succeeded":
            continue
        print(f"{sharepod.name}: {blocker.reason}: {blocker.message}")
        finding = cluster.explain(sharepod.name)
        if finding.change is not None:
            print(f"    {finding.change}")


if __name__ == "__main__":
    with SyncCluster.connect() as connected:
        main(connected)
