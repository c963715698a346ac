"""Creates an authenticated HTTP client from a kubeconfig or service account.

lightkube reads the configuration, makes the TLS context and signs requests (client certificates,
bearer tokens, tokens from a file that is read again after a 401, exec plugins). Only this module
imports it (decision record 022).
"""

import binascii
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec
import yaml

from kubeshare.kube.client.connection_pool import ConnectionPool
from kubeshare.kube.client.errors import ConfigError
from kubeshare.kube.client.http_client import IMPERSONATE_USER, DirectClient

__all__ = ["ConfigError", "connect", "connect_as"]

_EXEC = "client.authentication.k8s.io/"
_PORT_MAX = 65535


def connect(
    kubeconfig: str | Path | None = None, context: str | None = None, impersonate: str = ""
) -> tuple[httpx2.AsyncClient, str]:
    """An HTTP client for the API server, and the configured default namespace.

    Args:
        kubeconfig: a file; by default the pod's service account, then ``$KUBECONFIG``,
            then ``~/.kube/config``.
        context: of that file; by default its current one.
        impersonate: the user in whose name the requests are made; by default the configured one.

    Raises:
        ConfigError: there is no configuration, or it is broken.
    """
    from lightkube.config.client_adapter import ConnectionParams  # noqa: PLC0415
    from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415 - 150 ms to import
    from lightkube.core.exceptions import ConfigError as LightkubeConfigError  # noqa: PLC0415

    origin = f"kubeconfig {kubeconfig}" if kubeconfig else "Kubernetes configuration"
    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        chosen = config.get(context)
        assert chosen is not None  # without a default, it raises
        plugin = chosen.user.exec if chosen.user else None
        if plugin is not None and plugin.apiVersion == f"{_EXEC}v1":
            # The same format under a newer name, which lightkube does not know.
            plugin.apiVersion = f"{_EXEC}v1beta1"
        # Every request has its own deadline, and a watch is quiet for minutes.
        parameters = ConnectionParams(timeout=httpx2.Timeout(None, connect=10.0))
        found = parameters.httpx_params(chosen)
        if impersonate:
            found["headers"] = {IMPERSONATE_USER: impersonate}
        return _client(found), chosen.namespace
    except LightkubeConfigError as error:
        raise ConfigError(
            f"{origin}: {error}; set KUBECONFIG or pass --kubeconfig and --context"
        ) from error
    except _BROKEN as error:
        raise ConfigError(f"{origin} cannot be used: {_reason(error)}") from error


def connect_as(server: str, context: ssl.SSLContext, token: str) -> httpx2.AsyncClient:
    """An HTTP client that has the credentials of somebody else, and none of its own.

    Args:
        server: the address of the API server.
        context: checks its certificate, where the address has one.
        token: sent with each request.

    Raises:
        ValueError: the address is none.
    """
    url = _address(server)
    timeout = httpx2.Timeout(None, connect=10.0)
    pool = ConnectionPool(context if url.scheme == "https" else None)
    return DirectClient(pool, base_url=url, auth=_BearerToken(token), timeout=timeout)


class _BearerToken(httpx2.Auth):
    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["authorization"] = self._value
        yield request


def _client(parameters: dict[str, Any]) -> httpx2.AsyncClient:
    """A client over our own connection pool, or over httpx2's if there is a proxy."""
    url = _address(str(parameters["base_url"]))
    proxies = getproxies()
    if not proxies.keys() & {url.scheme, "all"} or proxy_bypass(url.host):
        context = _context(parameters["verify"]) if url.scheme == "https" else None
        del parameters["transport"]
        return DirectClient(ConnectionPool(context), **parameters)
    return httpx2.AsyncClient(**parameters)


def _address(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ValueError(f"its server {text}: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host or (url.port or 0) > _PORT_MAX:
        raise ValueError(f"its server {text} is no address such as https://HOST:6443")
    return url


def _context(verify: Any) -> ssl.SSLContext:
    # httpx2's own function takes no finished context, and imports all its transports.
    return (
        verify if isinstance(verify, ssl.SSLContext) else httpx2.create_ssl_context(verify=verify)
    )


_BROKEN = (
    AssertionError,
    AttributeError,
    KeyError,
    OSError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    yaml.YAMLError,
)


def _reason(error: Exception) -> str:
    """Why a configuration cannot be used, from an error that says only where reading failed."""
    if isinstance(error, KeyError):
        return f"it names {error} and does not say what that is"
    if isinstance(error, (AttributeError, TypeError)):
        return "it is not a kubeconfig"
    if isinstance(error, binascii.Error):
        return f"a certificate or key in it is not base64 ({error})"
    if isinstance(error, OSError):
        return f"it, or a certificate or key that it names: {error}"
    return f"{error or type(error).__name__}"


def credentials_error(error: Exception) -> ConfigError | None:
    """The error to raise if a request got no credentials; None for other errors."""
    from lightkube.core.exceptions import ConfigError as LightkubeConfigError  # noqa: PLC0415

    if isinstance(error, (LightkubeConfigError, OSError)):
        return ConfigError(f"no credentials for the API server: {error}; log in again?")
    return None
