"""The core's ways to say no: a value that cannot be, and a change that must not be."""


class InvalidValueError(ValueError):
    """A value that somebody wrote is not acceptable.

    Attributes:
        field: the name of the field, as the writer knows it (``kubeshare/gpu_limit``).
        message: what is wrong with it, without the field's name.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def under(self, field: str) -> "InvalidValueError":
        """The same complaint under the name by which another door knows the field."""
        return InvalidValueError(field, self.message)


class LedgerError(Exception):
    """A change would break the ledger's rules; the ledger is as it was before."""


class UnknownPolicyError(LookupError):
    """No placement policy has this name; the message lists those that exist."""
