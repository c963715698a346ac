"""Reads the viewer from a request; asks who that is."""

import re
from hashlib import sha256
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers

from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import UnauthorizedError
from kubeshare.kube.resources import SELF_SUBJECT_REVIEWS

NAMESPACES_HEADER: Final = "kubeshare-namespaces"
"""Names the namespaces to show, for viewers who may not list those of the whole cluster."""
MOST_NAMESPACES: Final = 16
"""Namespaces that one viewer is shown."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,16384}={0,2}")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACCOUNT: Final = "system:serviceaccount:"
_ANONYMOUS: Final = "system:anonymous"


class NoTokenError(UnauthorizedError):
    """A request has no bearer token."""


class Viewer(Struct, frozen=True):
    """Who looks, and at what.

    Attributes:
        token: the bearer token, a secret.
        namespaces: to be shown alone; empty for all that the viewer may see.
    """

    token: str
    namespaces: tuple[str, ...] = ()

    @property
    def key(self) -> bytes:
        """Tells viewers apart without keeping the token."""
        return sha256("\n".join((self.token, *self.namespaces)).encode()).digest()


def read_viewer(headers: Headers) -> Viewer:
    """Who sends a request.

    Raises:
        NoTokenError: it has no bearer token.
        InvalidValueError: it names what cannot be a namespace, or too many of them.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
        raise NoTokenError("sign in with a bearer token of the cluster", status=401)
    given = headers.get(NAMESPACES_HEADER, "").replace(",", " ").split()
    namespaces = tuple(dict.fromkeys(given))
    if len(namespaces) > MOST_NAMESPACES:
        raise InvalidValueError("namespaces", f"are more than {MOST_NAMESPACES}")
    for name in namespaces:
        if not _NAMESPACE.fullmatch(name):
            raise InvalidValueError("namespaces", f"{name[:63]} is no name of a namespace")
    return Viewer(token, namespaces)


async def user_of(client: Client) -> str:
    """The user whose token a client sends.

    The question is asked with that token, and every user may ask it, so the page needs no rights.

    Raises:
        UnauthorizedError: the token is unknown or has expired.
        ApiError: there is no answer.
    """
    answer = await client.create(SELF_SUBJECT_REVIEWS, {"metadata": {}})
    user = str(answer.get("status", {}).get("userInfo", {}).get("username", ""))
    if user in ("", _ANONYMOUS):
        raise UnauthorizedError("the API server does not know this token", status=401)
    return user


def home_of(user: str) -> str:
    """The namespace that is shown to who may not list those of the whole cluster."""
    namespace, colon, _ = user.removeprefix(_ACCOUNT).partition(":")
    return namespace if user.startswith(_ACCOUNT) and colon else "default"
