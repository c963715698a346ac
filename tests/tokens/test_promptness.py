"""The daemon serves a latency-sensitive claim promptly."""

from kubeshare.tokens.wire.protocol import GateState, MessageType
from tokens.helpers import grant
from tokens.virtual_time import VirtualClient, VirtualDaemon

MS = 1_000_000

DRAIN_NS = 2 * MS
WORK_NS = 5 * MS
PAUSE_NS = 95 * MS


def waits_ns(virtual: VirtualDaemon, jobs: list[VirtualClient]) -> list[int]:
    """How long 20 launches of `service` wait beside jobs that always have work."""
    service, waits = virtual.client("service"), []
    for _ in range(20):
        next_ns = virtual.now + PAUSE_NS
        virtual.saturate(jobs, PAUSE_NS, DRAIN_NS)
        virtual.elapse(max(0, next_ns - virtual.now))
        asked_ns = virtual.now
        service.want()
        while not is_open(service):
            closing = [job for job in jobs if job.page.gate is GateState.CLOSING]
            if not closing:
                virtual.advance()
            for job in closing:
                virtual.now += DRAIN_NS
                job.drain()
                job.want()
        waits.append(virtual.now - asked_ns)
        virtual.elapse(WORK_NS)
        service.send(MessageType.IDLE, epoch=service.page.epoch)
        service.drain()
    return waits


def is_open(client: VirtualClient) -> bool:
    return client.page.gate is GateState.OPEN


def test_a_launch_waits_for_the_shortest_grant_and_a_drain(virtual: VirtualDaemon) -> None:
    for name in "ab":
        virtual.grant(grant(name, 0.3))
    virtual.grant(grant("service", 0.3))
    jobs = [virtual.client(name) for name in "ab"]
    usual = waits_ns(virtual, jobs)

    virtual.grant(grant("service", 0.3, latency_sensitive=True))
    prompt = waits_ns(virtual, jobs)

    assert max(prompt) <= WORK_NS + DRAIN_NS
    assert sum(usual) >= 5 * sum(prompt)
    assert virtual.view("service")["latencySensitive"]
