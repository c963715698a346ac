"""A fake token daemon for one session, and programs under the library."""

from fakes.session.probe import Machine, Probe, eventually, runs_python
from fakes.session.session import MIB, Connection, FakeSession
from fakes.session.turns import waits_for_its_turn

__all__ = [
    "MIB",
    "Connection",
    "FakeSession",
    "Machine",
    "Probe",
    "eventually",
    "runs_python",
    "waits_for_its_turn",
]
