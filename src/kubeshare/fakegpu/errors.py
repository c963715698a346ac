"""What can be wrong with a fake GPU."""


class FakeGpuError(Exception):
    """A profile or a state folder cannot be used; the message says why."""
