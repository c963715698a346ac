"""`kubeshare get` lists what there is, in each format, and follows it."""

import asyncio
import csv
import io
import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from expectations.scheduling import expect_pending
from fakes.cluster import FakeCluster, run_scenario
from kubeshare.cli.get import command
from kubeshare.cli.get.command import Options
from kubeshare.cli.get.kinds import ALIASES, KINDS, age, cell
from kubeshare.cli.main import main
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.errors import ForbiddenError
from kubeshare.kube.resources import NAMESPACES
from kubeshare.simulator.control import Fault

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 28, tzinfo=UTC)


async def show(cluster: FakeCluster, *kinds: str, **options: Any) -> None:
    chosen = tuple(KINDS[kind] for kind in kinds or KINDS)
    async with cluster.server.client("user") as client:
        await command.show(client, Options(kinds=chosen, **options))


async def one_runs_and_one_waits(cluster: FakeCluster) -> None:
    cluster.server.seed(NAMESPACES, {"metadata": {"name": "other"}})
    cluster.start()
    await cluster.run("train", "0.7", labels={"app": "train"})
    cluster.share("waits", "0.6", memory="1Gi")
    await expect_pending(cluster, "waits")


def printed(capsys: pytest.CaptureFixture[str], *kinds: str, **options: Any) -> list[str]:
    async def play(cluster: FakeCluster) -> None:
        await one_runs_and_one_waits(cluster)
        await show(cluster, *kinds, **options)

    run_scenario(play, n1=1)
    return capsys.readouterr().out.splitlines()


def cells(line: str) -> list[str]:
    return line.split()


def test_all_kinds_are_tables_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys)
    assert cells(lines[0])[:4] == ["NAME", "PHASE", "READY", "GPUID"]
    gpuid = cells(lines[1])[3]
    assert cells(lines[1])[:-1] == ["train", "Running", "yes", gpuid, "n1", "0.7", "1", "1Gi", "-"]
    assert cells(lines[2])[:-1] == ["waits", "-", "no", "-", "-", "0.6", "1", "1Gi", "NoRoom"]
    assert lines[3] == ""
    assert cells(lines[4])[:2] == ["NAME", "NODE"]
    assert cells(lines[5])[:5] == [gpuid, "n1", "Active", "1", "0.7"]
    assert cells(lines[7])[:3] == ["NAME", "MODE", "GPUS"]
    assert cells(lines[8])[:3] == ["n1", "shared", "1"]
    assert lines[10] == "Next: `kubeshare explain waits -n default` says why it waits."
    # Aligned: each title is above its column.
    assert lines[0].index("NODE") == lines[1].index("n1")


def test_a_wide_table_of_all_namespaces_has_more_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head, train, waits, *_ = printed(capsys, "sharepods", output="wide", all_namespaces=True)
    assert cells(head)[:2] == ["NAMESPACE", "NAME"]
    assert cells(head)[-3:] == ["UUID", "MODEL", "MESSAGE"]
    assert cells(train)[0] == "default"
    assert "compute 0.3 left, 0.6 asked" in waits


def test_a_selector_and_a_namespace_select(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(printed(capsys, "sharepods", labels="app=train")) == 2
    words = ["No SharePods. Next: -A shows all namespaces."]
    assert printed(capsys, "sharepods", namespace="other") == words
    words = ["No vGPUs. Next: `kubeshare doctor` says what is missing."]
    assert printed(capsys, "vgpus", labels="app=none") == words


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_have_typed_fields(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(printed(capsys, output=output))
    items = (json.loads(text) if output == "json" else yaml.safe_load(text))["items"]
    train, waits, vgpu, node = items
    assert [each["kind"] for each in items] == ["SharePod", "SharePod", "VGPU", "GPUNode"]
    assert (train["ready"], train["gpuids"]) == (True, [vgpu["name"]])
    assert (waits["ready"], waits["reason"], waits["gpuids"]) == (False, "NoRoom", [])
    assert (vgpu["requestedMicros"], vgpu["heldBy"]) == (700_000, ["default/train"])
    assert (node["name"], node["gpus"], node["unhealthy"]) == ("n1", 1, [])


def test_csv_has_the_same_fields_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(printed(capsys, "sharepods", output="csv"))
    train, waits = csv.DictReader(io.StringIO(text))
    assert (train["name"], train["ready"], train["namespace"]) == ("train", "true", "default")
    assert (waits["ready"], waits["reason"]) == ("false", "NoRoom")
    assert set(train) == {
        "namespace",
        "name",
        *KINDS["sharepods"].columns,
        *KINDS["sharepods"].wide,
    }


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_watch_goes_on_with_each_change(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        await one_runs_and_one_waits(cluster)
        async with cluster.server.client("user") as client:
            options = Options(kinds=(KINDS["sharepods"],), output=output)
            following = asyncio.create_task(command.follow(client, options))
            await cluster.quiet(1)
            first = capsys.readouterr().out.splitlines()
            assert len(first) == (3 if output == "table" else 2)
            cluster.delete("train")
            await cluster.until(lambda: cluster.running("waits"))
            await cluster.quiet(1)
            following.cancel()

    run_scenario(play, n1=1)
    later = capsys.readouterr().out.splitlines()
    if output == "json":
        changes = [json.loads(line) for line in later]
        deleted = [each["object"]["name"] for each in changes if each["type"] == "DELETED"]
        assert deleted == ["train"]
        assert changes[-1]["object"]["ready"]
        return
    assert [cells(line)[0] for line in later if "Deleted" in line] == ["train"]
    assert cells(later[-1])[:3] == ["waits", "Running", "yes"]
    assert "NAME" not in "".join(later)


def test_what_goes_or_changes_between_list_and_watch_is_a_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await one_runs_and_one_waits(cluster)
        async with cluster.server.client("user") as client:
            listing, lists = client.list, 0

            async def after_a_change(*arguments: Any, **selection: Any) -> Any:
                nonlocal lists
                lists += 1
                if lists == 2:
                    cluster.delete("train")
                    await cluster.until(lambda: cluster.running("waits"))
                return await listing(*arguments, **selection)

            monkeypatch.setattr(client, "list", after_a_change)
            options = Options(kinds=(KINDS["sharepods"],), output="json")
            following = asyncio.create_task(command.follow(client, options))
            await cluster.quiet(60)
            following.cancel()

    run_scenario(play, n1=1)
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    seen = [(each["type"], each["object"]["name"]) for each in changes]
    assert seen[:2] == [("ADDED", "train"), ("ADDED", "waits")]
    assert ("DELETED", "train") in seen[2:]
    assert {kind for kind, name in seen[2:] if name == "waits"} == {"MODIFIED"}


def test_a_cluster_without_kubeshare_is_told_so() -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.server.inject(Fault.answer(404, "NotFound"), verb="list")
        with pytest.raises(NotInstalledError, match="`kubeshare install` puts it there"):
            await show(cluster, "vgpus")

    run_scenario(play)


def test_kinds_that_may_not_be_read_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        await one_runs_and_one_waits(cluster)
        cluster.server.inject(Fault.answer(403, "Forbidden"), resource="vgpus", times=2)
        await show(cluster, output="json")
        with pytest.raises(ForbiddenError):
            await show(cluster, "vgpus")

    run_scenario(play, n1=1)
    written = capsys.readouterr()
    kinds = [each["kind"] for each in json.loads(written.out)["items"]]
    assert kinds == ["SharePod", "SharePod", "GPUNode"]
    assert written.err.startswith("without vGPUs, which you may not read (")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "csv"], "-o csv has the columns of one kind: give sharepods, vgpus, nodes"),
        (["--watch"], "--watch follows one kind: give sharepods, vgpus, nodes"),
        (["vgpus", "-w", "-o", "yaml"], "--watch prints table, wide, json, not yaml"),
        (["pods"], "'pods' is not one of 'sharepods'"),
    ],
)
def test_wrong_use_says_what_is_right(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_ctrl_c_is_the_end_of_a_watch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(doing: Any) -> None:
        doing.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run", interrupted)
    assert main(["get", "vgpus", "--watch"]) == 0
    assert main(["get", "vgpus"]) == 130


def test_the_commands_of_the_pages_are_accepted() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    found = [
        arguments
        for page in pages
        for arguments in re.findall(r"`kubeshare get([^`]*)`", page.read_text())
    ]
    assert len(found) >= 5
    for arguments in found:
        command.get.make_context("get", shlex.split(arguments))


@pytest.mark.parametrize(
    ("kind", "spec"), [("sharepods", {}), ("vgpus", {"nodeName": "n"}), ("nodes", {})]
)
def test_every_column_is_a_field(kind: str, spec: dict[str, str]) -> None:
    found = KINDS[kind]
    obj = {"metadata": {"name": "a", "namespace": "b"}, "spec": spec}
    fields = found.fields(msgspec.convert(obj, found.resource.shape))
    assert {*found.columns, *found.wide} <= set(fields)
    assert kind in ALIASES.values()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")],
)
def test_ages_are_in_their_largest_unit(seconds: int, shown: str) -> None:
    created = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(created, NOW) == shown
    assert cell("created", created, NOW) == shown


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("message", "a\x1b[2Jb\nc", "a [2Jb c"),
        ("memoryBytes", 16 << 30, "16Gi"),
        ("holders", 0, "0"),
        ("created", "", "-"),
        ("models", [], "-"),
        ("models", ["A", "B"], "A,B"),
    ],
)
def test_a_cell_is_one_line_of_text(key: str, value: object, shown: str) -> None:
    assert cell(key, value, NOW) == shown
