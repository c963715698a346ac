"""The fake GPU's error."""


class FakeGpuError(Exception):
    """A profile or a state folder cannot be used; the message says why."""
