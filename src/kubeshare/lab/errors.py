"""The lab's error."""


class LabError(Exception):
    """The lab cannot go on; the message says what to do next.

    Args:
        message: what was wrong, where, and what to do.
        exit_code: what the command line ends with: 2 for wrong use, 3 where
            something could not be reached, started or installed.
    """

    def __init__(self, message: str, *, exit_code: int = 3) -> None:
        super().__init__(message)
        self.exit_code = exit_code
