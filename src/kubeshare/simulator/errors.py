"""Errors of a simulation, with messages for people."""


class SimulationError(ValueError):
    """A workload, a cluster or a policy of a simulation is not valid."""


class PolicyError(SimulationError):
    """A policy raised an error, or placed a job where it does not fit."""
