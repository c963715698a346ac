"""Rules and alerts are valid, tried with promtool, and each alert has a runbook."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.prometheus_tools import promtool
from monitoring.scrapes import scrapes
from tools import prometheus_rule

ROOT = Path(__file__).parents[2]
RULES = sorted((prometheus_rule.MONITORING / "rules").glob("*.yaml"))
TESTS = Path(__file__).parent / "rules"
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules that are an ``alert`` or a ``record``."""
    groups = [group for path in RULES for group in loaded(path)["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


@pytest.mark.slow  # so that `make test-fast` needs no promtool
def test_promtool_finds_the_rules_and_the_configuration_valid(tmp_path: Path) -> None:
    promtool("check", "rules", "--lint-fatal", *map(str, RULES))
    config = loaded(prometheus_rule.MONITORING / "prometheus.yaml")
    [job] = config["scrape_configs"]
    # Debian builds Prometheus without it.
    assert job.pop("kubernetes_sd_configs") == [
        {"role": "pod", "namespaces": {"names": ["kubeshare-system"]}}
    ]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    promtool("check", "config", "--syntax-only", str(file))


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(TESTS.glob("*.test.yaml")), ids=lambda path: path.name)
def test_each_rule_says_what_it_should(case: Path) -> None:
    promtool("test", "rules", str(case))


def test_each_alert_is_tried_where_it_fires_and_where_it_does_not() -> None:
    tried = [
        (one["alertname"], bool(one["exp_alerts"]))
        for test in loaded(TESTS / "alerts.test.yaml")["tests"]
        for one in test["alert_rule_test"]
    ]
    names = [rule["alert"] for rule in rules("alert")]
    assert set(tried) == {(name, fires) for name in names for fires in (True, False)}


def test_each_recording_rule_is_tried() -> None:
    cases = loaded(TESTS / "recording.test.yaml")["tests"]
    tried = " ".join(one["expr"] for case in cases for one in case["promql_expr_test"])
    assert [rule["record"] for rule in rules("record") if rule["record"] not in tried] == []


def test_each_alert_has_a_runbook_of_its_own() -> None:
    sections = re.split(r"^## ", RUNBOOKS, flags=re.MULTILINE)[1:]
    names = [section.partition("\n")[0] for section in sections]
    assert names == [rule["alert"] for rule in rules("alert")]
    for section in sections:
        parts = re.findall(r"^\*\*(\w+)\.\*\*", section, flags=re.MULTILINE)
        assert parts == ["Means", "Look", "Do"], section.partition("\n")[0]
    for rule in rules("alert"):
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{anchor}"


def test_rules_read_metrics_that_the_programs_serve() -> None:
    text = "".join(scrapes().values())
    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    histograms = re.findall(r"^# TYPE (\S+) histogram", text, re.MULTILINE)
    served |= {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    for rule in (*rules("alert"), *rules("record")):
        names = re.findall(r"\b((?:kubeshare|kube_runtime|leader_election)_\w+)", rule["expr"])
        assert set(names) <= served, rule
        assert names or "up{" in rule["expr"]


def test_the_object_for_the_operator_has_the_same_rules() -> None:
    assert prometheus_rule.OBJECT.read_text() == prometheus_rule.text(), (
        "run tools/prometheus_rule.py"
    )


def test_both_set_ups_scrape_with_the_same_labels() -> None:
    monitor = loaded(prometheus_rule.MONITORING / "operator" / "pod-monitor.yaml")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [job] = loaded(prometheus_rule.MONITORING / "prometheus.yaml")["scrape_configs"]
    assert endpoint["honorLabels"] is job["honor_labels"] is True
    plain = {
        one["target_label"]: (one["source_labels"], one.get("replacement"))
        for one in job["relabel_configs"]
        if "target_label" in one
    }
    for one in endpoint["relabelings"]:
        assert plain[one["targetLabel"]] == (one["sourceLabels"], one.get("replacement"))
