"""A fake token daemon for one session, and programs under the library."""

from fakes.session.probe import Machine, Probe, eventually
from fakes.session.session import MIB, Connection, FakeSession

__all__ = ["MIB", "Connection", "FakeSession", "Machine", "Probe", "eventually"]
