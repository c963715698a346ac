"""A claim whose token daemon is the test itself, and programs that run under the device library."""

from fakes.claim.claim import MIB, Claim, Connection
from fakes.claim.probe import Machine, Probe, eventually

__all__ = ["MIB", "Claim", "Connection", "Machine", "Probe", "eventually"]
