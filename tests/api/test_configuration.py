"""The configuration is parsed strictly and applies as soon as it is written."""

import asyncio
from pathlib import Path

import pytest
import yaml

from expectations.pods import expect_event
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.configuration import (
    Configuration,
    DynamicConfiguration,
    parse,
    parse_cpu_cores,
    watch_configuration,
)
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.priority_and_gang import HIGHEST_PRIORITY
from kubeshare.kube.resources import CONFIG_MAPS
from kubeshare.simulator.control import FakeApiServer, run_virtual, until

DEPLOYED = (
    Path(__file__).parents[2] / "deploy/chart/kubeshare/manifests/programs/configuration.yaml"
)


def test_what_is_not_said_is_the_default() -> None:
    read = parse("pool: {policy: hybrid, idleSeconds: 10}")
    assert (read.pool.policy, read.pool.idle_seconds, read.pool.minimum) == ("hybrid", 10, 0)


@pytest.mark.parametrize("text", ["", "# only words\n", "{}"])
def test_an_empty_text_is_all_defaults(text: str) -> None:
    assert parse(text) == Configuration()


def test_the_priority_of_a_namespace_that_is_not_listed_is_the_default() -> None:
    allowed = parse("maxPriority: {default: 5, namespaces: {a: 50}}").max_priority
    assert (allowed.of("a"), allowed.of("b")) == (50, 5)
    assert Configuration().max_priority.of("b") == HIGHEST_PRIORITY


@pytest.mark.parametrize(("text", "cores"), [("all", "all"), ("none", "none"), ("3", 3)])
def test_cores_are_all_none_or_a_number(text: str, cores: object) -> None:
    assert parse(f"cpuCores: {text}").cpu_cores == cores
    assert parse_cpu_cores(text, "cores") == cores


@pytest.mark.parametrize("text", ["", "0", "-1", "1025", "1.5", "07", "many", "All"])
def test_an_annotation_with_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"cores: .* is not all, none or a number"):
        parse_cpu_cores(text, "cores")


def test_what_is_installed_says_the_defaults() -> None:
    installed = yaml.safe_load(DEPLOYED.read_text())
    assert parse(installed["data"]["config.yaml"]) == Configuration()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pol: {}", ["config.yaml: pol", "no such key"]),
        ("pool: {minimun: 1}", ["config.yaml: pool.minimun", "no such key"]),
        ("pool: {policy: ondemand}", ["config.yaml: pool.policy", "ondemand"]),
        ("pool: {minimum: -1}", ["pool.minimum", ">= 0"]),
        ("pool: {minimum: many}", ["pool.minimum", "int"]),
        ("pool: {idleSeconds: .nan}", ["pool.idleSeconds"]),
        ("gpushare: {memoryUnit: GB}", ["gpushare.memoryUnit", "GB"]),
        ("maxPriority: 5", ["maxPriority", "object"]),
        ("maxPriority: {default: 101}", ["maxPriority.default", "<= 100"]),
        ("maxPriority: {namespaces: {a: -1}}", ["maxPriority.namespaces", ">= 0"]),
        ("cpuCores: many", ["cpuCores", "many"]),
        ("cpuCores: 0", ["cpuCores", ">= 1"]),
        ("timeQuota: {milliseconds: 4}", ["timeQuota.milliseconds", ">= 5"]),
        ("timeQuota: {pods: {minimum: 5}}", ["timeQuota.pods", "maximum"]),
        ("timeQuota: {pods: {minimum: 9, maximum: 8}}", ["timeQuota.pods", "minimum 9 is more"]),
        ("pool: {warm: 1, warm: 2}", ["warm is given twice"]),
        ("pool: [1", ["is not YAML"]),
        ("pool: {idleSeconds: 2026-13-01}", ["is not YAML", "month must be in 1..12"]),
        ("pool: {warm: !!int many}", ["is not YAML", "many"]),
        pytest.param("[" * 2000, ["is not YAML", "recursion"], id="nested 2000 deep"),
        ("just text", ["config.yaml", "object"]),
    ],
)
def test_what_cannot_be_is_refused_with_the_keys_path(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse(text)
    for word in words:
        assert word in str(refused.value)


def test_a_change_is_in_force_and_told_and_what_cannot_be_read_changes_nothing() -> None:
    async def main() -> None:
        server = FakeApiServer()
        reflector = watch_configuration(server.client("reader"))
        configured = DynamicConfiguration(reflector)
        minimums: list[int] = []
        configured.subscribe(lambda: minimums.append(configured.now().pool.minimum))
        task = asyncio.create_task(reflector.run())
        try:
            await reflector.wait_for_sync()
            assert configured.now() == Configuration()
            write(server, "other", "pool: {minimum: 7}")
            write(server, "kubeshare", "pool: {minimum: 1}")
            await until(lambda: minimums == [1])
            write(server, "kubeshare", "pool: {minimum: none}")
            write(server, "kubeshare", "pool: {minimum: 2}")
            await until(lambda: minimums == [1, 2])
            server.remove(CONFIG_MAPS, "kubeshare", NAMESPACE)
            await until(lambda: minimums == [1, 2, 0])
        finally:
            task.cancel()

    run_virtual(main())


@scenario(n1=1)
async def test_an_event_says_what_is_wrong_with_a_configuration(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.configure(pool={"minimun": 1})
    await expect_event(cluster, "kubeshare", "InvalidConfiguration")
    assert "pool.minimun: there is no such key" in cluster.events("kubeshare")[0]


def write(server: FakeApiServer, name: str, text: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    server.seed(CONFIG_MAPS, {"metadata": metadata, "data": {"config.yaml": text}})
