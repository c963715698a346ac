"""Replaces names by keyed hashes whose key is forgotten."""

import secrets
from hashlib import blake2b
from typing import Final

KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 8


class Pseudonyms:
    """Names of one recording: equal ones stay equal, and none can be guessed and checked.

    The key is random, and in memory only: without it, nobody can hash a name that they suspect.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)

    def of(self, *words: str) -> str:
        """The pseudonym of a name, or of several that belong together; "" of nothing."""
        if not any(words):
            return ""
        text = "\0".join(words).encode()
        return blake2b(text, key=self._key, digest_size=_DIGEST_BYTES).hexdigest()
