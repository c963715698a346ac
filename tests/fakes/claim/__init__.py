"""A claim whose token daemon is the test itself, and programs that run under the device library."""

from vgpu_claim.claim import MIB, Claim, Connection
from vgpu_claim.probe import Machine, Probe, eventually

__all__ = ["MIB", "Claim", "Connection", "Machine", "Probe", "eventually"]
