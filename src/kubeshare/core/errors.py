"""Errors of the core: invalid values and rejected changes."""


class InvalidValueError(ValueError):
    """A value in a manifest is not acceptable.

    Attributes:
        field: the name of the field as the manifest has it (``kubeshare/gpu_limit``).
        message: what is wrong, without the name of the field.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def under(self, field: str) -> "InvalidValueError":
        """The same error under another name of the field."""
        return InvalidValueError(field, self.message)


class LedgerError(Exception):
    """A change would break the rules of the ledger; the ledger is unchanged."""


class UnsettledError(Exception):
    """The ledger has changed too often while a search was paused."""


class UnknownPolicyError(LookupError):
    """No placement policy has this name; the message lists those that exist."""


class PolicyFailedError(Exception):
    """A policy raised an error; the message names the policy, and says what it raised."""
