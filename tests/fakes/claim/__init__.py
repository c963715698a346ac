"""A fake token daemon for one claim, and programs under the library."""

from fakes.claim.claim import MIB, Claim, Connection
from fakes.claim.probe import Machine, Probe, eventually

__all__ = ["MIB", "Claim", "Connection", "Machine", "Probe", "eventually"]
