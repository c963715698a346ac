"""Kubeconfigs: errors of broken ones, and exec plugins for credentials."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from kubeshare.kube.client.client import Client
from kubeshare.kube.client.connection import ConfigError, connect
from kubeshare.kube.client.errors import UnreachableError
from kubeshare.kube.client.http_client import DirectClient
from kubeshare.kube.resources import PODS


def kubeconfig(folder: Path, user: dict[str, Any]) -> Path:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def plugin(command: str, *args: str, version: str = "v1") -> dict[str, Any]:
    api_version = f"client.authentication.k8s.io/{version}"
    return {"exec": {"apiVersion": api_version, "command": command, "args": list(args)}}


async def authorization(path: Path) -> str:
    """The header that a request to the server would carry."""
    client, _ = connect(path)
    assert client.auth is not None
    async with client:
        flow = client.auth.async_auth_flow(httpx2.Request("GET", "http://127.0.0.1:9"))
        return (await anext(flow)).headers["authorization"]


def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match="missing not found"):
        connect(missing)
    for number, text in enumerate(("{}", "[", "a: [1", "clusters: 7")):
        broken = tmp_path / f"broken{number}"
        broken.write_text(text)
        with pytest.raises(ConfigError, match=f"kubeconfig {broken}"):
            connect(broken)


def test_a_configuration_that_nobody_named_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(ConfigError) as caught:
        connect()
    assert str(caught.value).startswith("Kubernetes configuration: ")
    assert str(caught.value).endswith("; set KUBECONFIG or pass --kubeconfig and --context")


def test_a_context_that_is_not_there_or_not_chosen_is_an_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "t"})
    with pytest.raises(ConfigError, match=f"^kubeconfig {path}.*other"):
        connect(path, "other")
    path.write_text(path.read_text().replace("current-context: c\n", ""))
    with pytest.raises(ConfigError, match=f"^kubeconfig {path}: No current context .*--context$"):
        connect(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("http://127.0.0.1:9", "127.0.0.1:9", "is no address such as https://HOST:6443"),
        ("http://127.0.0.1:9", "http://127.0.0.1:99999", "is no address such as"),
        ("http://127.0.0.1:9", "http://127.0.0.1:x", "Invalid port"),
        ("http://127.0.0.1:9", "http://ä..b", "Invalid IDNA hostname"),
        ("cluster: k", "cluster: q", "it names 'q' and does not say what that is"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_said(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = kubeconfig(tmp_path, {"token": "t"})
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=rf"kubeconfig {path} cannot be used: .*{words}"):
        connect(path)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"client-certificate": "/no", "client-key": "/no"}, "a certificate or key that it names"),
        ({"client-certificate-data": "a", "client-key-data": "a"}, "is not base64"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said(
    tmp_path: Path, user: dict[str, str], words: str
) -> None:
    path = kubeconfig(tmp_path, user)
    path.write_text(path.read_text().replace("http:", "https:"))
    with pytest.raises(ConfigError, match=rf"kubeconfig {path} cannot be used: .*{words}"):
        connect(path)


@pytest.mark.parametrize("text", ["", "[]", "7"])
def test_what_is_no_kubeconfig_is_said_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="it is not a kubeconfig"):
        connect(path)


def test_a_server_may_have_the_highest_port(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "t"})
    path.write_text(path.read_text().replace(":9", ":65535"))
    client, _ = connect(path)
    asyncio.run(client.aclose())
    assert client.base_url.port == 65535


def test_the_context_says_the_namespace(tmp_path: Path) -> None:
    client, namespace = connect(kubeconfig(tmp_path, {"token": "t"}))
    asyncio.run(client.aclose())
    assert namespace == "n"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_exec_plugin_gives_a_token(tmp_path: Path, version: str) -> None:
    answer = json.dumps({"status": {"token": "secret"}})
    path = kubeconfig(tmp_path, plugin("echo", answer, version=version))
    assert asyncio.run(authorization(path)) == "Bearer secret"


@pytest.mark.parametrize("command", ["false", "/no/such/plugin"])
def test_the_error_of_a_failed_plugin_says_what_to_do(tmp_path: Path, command: str) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig(tmp_path, plugin(command))) as client:
            with pytest.raises(ConfigError, match="no credentials"):
                await client.get(PODS, "a", "b")

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_is_encrypted_if_the_address_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    contexts: list[object] = []

    async def open_connection(*_: object, **more: object) -> None:
        contexts.append(more["ssl"])
        raise OSError("nobody there")

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    path = kubeconfig(tmp_path, {"token": "t"})
    path.write_text(path.read_text().replace("http:", f"{scheme}:"))

    async def main() -> None:
        async with Client.connect(path) as client:
            with pytest.raises(UnreachableError, match=f"{scheme}://127.0.0.1:9"):
                await client.get(PODS, "a", "b")

    asyncio.run(main())
    assert [isinstance(each, ssl.SSLContext) for each in contexts] == [scheme == "https"]


@pytest.mark.parametrize(
    ("variables", "direct"),
    [
        ({}, True),
        ({"http_proxy": "http://127.0.0.1:3"}, False),
        ({"all_proxy": "http://127.0.0.1:3"}, False),
        ({"https_proxy": "http://127.0.0.1:3"}, True),
        ({"http_proxy": "http://127.0.0.1:3", "no_proxy": "127.0.0.1"}, True),
    ],
)
def test_a_proxy_is_used_where_one_is_set_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, direct: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client, _ = connect(kubeconfig(tmp_path, {"token": "t"}))
    asyncio.run(client.aclose())
    assert isinstance(client, DirectClient) is direct
