"""What `kubeshare usage` shows of the accounts of a cluster."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.cli.usage import formats
from kubeshare.client.usage.accounts import AccountsError, Usage, parse_keys, read
from kubeshare.client.usage.period import since
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def account(server: FakeApiServer, name: str, namespace: str = "a", **fields: Any) -> None:
    """An account of the last hour, of half a V100."""
    share = {"uuid": "GPU-a", "model": "V100", "requestMicros": 500_000, "memoryBytes": 1 << 30}
    share |= {"usedNs": 900 * 10**9} | fields.pop("share", {})
    status = {
        "nodeName": "n1",
        "grant": name,
        "pod": name,
        "owner": "Job/train",
        "startedAt": micro_timestamp(NOW - HOUR),
        "observedAt": micro_timestamp(NOW),
        "durationNs": 3600 * 10**9,
        "ended": True,
        "complete": True,
        "shares": [share],
    }
    metadata = {"name": name, "namespace": namespace}
    server.seed(SHARE_USAGES, {"metadata": metadata, "status": status | fields})


def usage(
    server: FakeApiServer, by: str = "namespace", period: str = "7d", namespace: str = ""
) -> Usage:
    async def main() -> Usage:
        async with server.client() as client:
            return await read(client, namespace, parse_keys(by), since(period, NOW), NOW)

    return run_virtual(main())


@pytest.fixture
def server() -> FakeApiServer:
    return FakeApiServer()


def test_csv_has_a_line_for_each_row(server: FakeApiServer) -> None:
    account(server, "p")
    account(server, "q", "b", share={"priceMicros": 3_000_000}, currency="EUR", ended=False)
    lines = list(csv.reader(io.StringIO(formats.as_csv(usage(server, "namespace,owner")))))
    assert lines == [
        [
            *("namespace", "owner", "requestedGpuSeconds", "heldGpuSeconds", "usedGpuSeconds"),
            *("memoryGibHours", "cost", "grants", "running", "complete"),
        ],
        ["a", "Job/train", "1800.0", "1800.0", "900.0", "1.0", "", "1", "0", "true"],
        ["b", "Job/train", "1800.0", "1800.0", "900.0", "1.0", "1.5", "1", "1", "true"],
    ]


def test_json_says_what_csv_says_and_for_when(server: FakeApiServer) -> None:
    account(server, "p")
    said = json.loads(formats.as_json(usage(server)))
    assert (said["since"], said["until"]) == ("2026-11-17T12:00:00+00:00", NOW.isoformat())
    assert (said["complete"], said["currency"], said["notes"]) == (True, "", [])
    (row,) = said["rows"]
    assert (row["namespace"], row["requestedGpuSeconds"], row["cost"]) == ("a", 1800, None)


def test_the_table_has_costs_where_there_are_prices(server: FakeApiServer) -> None:
    account(server, "p")
    assert "COST" not in formats.as_table(usage(server))
    account(server, "q", "b", share={"priceMicros": 3_000_000}, currency="EUR")
    header, _, priced, *_ = formats.as_table(usage(server)).splitlines()
    assert header.split() == [
        *("NAMESPACE", "REQUESTED", "HELD", "USED", "MEMORY", "COST", "EUR"),
        *("GRANTS", "RUNNING", "COMPLETE"),
    ]
    assert priced.split() == ["b", "1800.0", "1800.0", "900.0", "1.00", "1.50", "1", "0", "yes"]


def test_a_lost_node_is_said(server: FakeApiServer) -> None:
    before = NOW - timedelta(hours=2)
    account(server, "p", ended=False, startedAt=micro_timestamp(before))
    found = usage(server)
    assert not found.complete
    assert formats.as_table(found).splitlines()[1].split()[-1] == "no"
    assert formats.INCOMPLETE in formats.as_table(found)


def test_before_the_first_account_it_says_when_one_comes(server: FakeApiServer) -> None:
    found = usage(server)
    assert formats.as_table(found).startswith("No account yet. One is written when a pod releases")
    assert json.loads(formats.as_json(found))["rows"] == []
    assert len(formats.as_csv(found).splitlines()) == 1


def test_older_accounts_are_mentioned(server: FakeApiServer) -> None:
    account(server, "p", startedAt=micro_timestamp(NOW - timedelta(days=9)))
    assert "give a longer --since" in formats.as_table(usage(server))


def test_a_namespace_sees_its_own(server: FakeApiServer) -> None:
    account(server, "p")
    account(server, "q", "b")
    assert [row.keys for row in usage(server, namespace="b").rows] == [("b",)]


def test_costs_in_several_currencies_are_not_added(server: FakeApiServer) -> None:
    for name, currency in (("p", "EUR"), ("q", "USD")):
        account(server, name, currency=currency, share={"priceMicros": 1})
    found = usage(server)
    assert [row.cost for row in found.rows] == [None]
    assert "several currencies (EUR, USD)" in formats.as_table(found)


def test_an_account_that_cannot_be_read_is_counted_as_missing(server: FakeApiServer) -> None:
    account(server, "p")
    account(server, "q", startedAt="yesterday")
    found = usage(server)
    assert not found.complete
    assert found.notes == ("1 ShareUsages cannot be read and are not counted",)


def test_a_name_that_a_spreadsheet_would_calculate_is_text(server: FakeApiServer) -> None:
    account(server, "p", group="=1+1")
    assert formats.as_csv(usage(server, "group")).splitlines()[1].startswith("'=1+1,")


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (404, "NotFound", "`kubeshare install` brings them"),
        (403, "Forbidden", "name yours by -n"),
    ],
)
def test_accounts_that_are_out_of_reach_are_explained(
    server: FakeApiServer, status: int, reason: str, words: str
) -> None:
    server.inject(Fault.answer(status, reason), verb="list", resource="shareusages")
    with pytest.raises(AccountsError, match=words):
        usage(server)


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("90m", "2026-11-24T10:30:00+00:00"),
        ("1w", "2026-11-17T12:00:00+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
        ("2026-11-01T02:00:00+01:00", "2026-11-01T01:00:00+00:00"),
    ],
)
def test_a_period_or_a_date_says_since_when(text: str, begin: str) -> None:
    assert since(text, NOW).isoformat() == begin


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 d", "1.5d", "999999d", "2027-01-01"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="--since"):
        since(text, NOW)


@pytest.mark.parametrize("text", ["", "user", "namespace,", "pod,pod"])
def test_unknown_keys_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="--by"):
        parse_keys(text)
