"""The commands that need no process answer as kubectl does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError
from plain_kubectl import PlainApiServer, UnknownCommandError, parse

NAMESPACE = "plain-kubectl"
HERE = ("-n", NAMESPACE)
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}


@pytest.fixture
def both(apiserver: PlainApiServer) -> Iterator[tuple[PlainApiServer, ApiServer]]:
    apiserver.kubectl("create", "namespace", NAMESPACE)
    yield apiserver, ApiServer(apiserver.settings, apiserver.programs)
    apiserver.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.apiserver
def test_it_prints_what_kubectl_prints(both: tuple[PlainApiServer, ApiServer]) -> None:
    manifest = json.dumps(MAP)
    printed = []
    for server in both:
        printed.append(
            [
                server.kubectl("create", "-f", "-", *HERE, stdin=manifest),
                server.kubectl("get", "configmap", "a", "-o", "name", *HERE),
                server.kubectl("get", "cm/a", "-o", "jsonpath={.data}", *HERE),
                server.kubectl("get", "cm", "a", "-o", "jsonpath={.data.k}", *HERE),
            ]
        )
        server.kubectl("label", "configmap", "a", "x=1", "y=2", *HERE)
        with pytest.raises(LabError, match="overwrite is false"):
            server.kubectl("label", "configmap", "a", "x=2", *HERE)
        server.kubectl("label", "configmap", "a", "x=3", "y-", "--overwrite", *HERE)
        server.kubectl("patch", "cm", "a", "--type=merge", "-p", '{"data": {"k": "w"}}', *HERE)
        found = json.loads(server.kubectl("get", "cm", "a", "-o", "json", *HERE))
        printed[-1].append(str((found["metadata"]["labels"], found["data"])))
        wrongs: list[dict[str, Any]] = [{"data": {"k": 1}}, {"datum": {}}]
        for wrong in wrongs:
            with pytest.raises(LabError, match="BadRequest"):
                server.kubectl("create", "-f", "-", *HERE, stdin=json.dumps(MAP | wrong))
        with pytest.raises(LabError, match=r"\(Forbidden\).*mallory"):
            server.kubectl("get", "cm", "a", "-o", "name", "--as=mallory", *HERE)
        server.kubectl("delete", "cm", "a", *HERE)
        with pytest.raises(LabError, match=r"\(NotFound\)"):
            server.kubectl("delete", "cm", "a", *HERE)
        server.kubectl("delete", "cm", "a", "--ignore-not-found", *HERE)
    assert printed[0] == printed[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "pods", "-A"),
        ("get", "pods", "-o", "yaml"),
        ("get", "pods", "-o", "jsonpath={.items[*].spec}"),
        ("create", "--raw", "/api/v1/pods"),
        ("delete", "pod", "a", "--force=true"),
    ],
)
def test_what_it_does_not_know_is_left_to_kubectl(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UnknownCommandError):
        parse(arguments)
