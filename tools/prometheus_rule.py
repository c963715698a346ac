"""Writes the PrometheusRule object for the Prometheus Operator from the plain rule files."""

import sys
from pathlib import Path
from typing import Final

import yaml

MONITORING: Final = Path(__file__).parents[1] / "deploy" / "chart" / "kubeshare" / "monitoring"
OBJECT: Final = MONITORING / "operator" / "prometheus-rule.yaml"
_HEAD: Final = "# Written by tools/prometheus_rule.py from ../rules; run it when a rule changes.\n"


def text() -> str:
    """The object with the groups of all rule files, as YAML."""
    files = sorted((MONITORING / "rules").glob("*.yaml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "kubeshare",
            "namespace": "kubeshare-system",
            "labels": {"app.kubernetes.io/part-of": "kubeshare"},
        },
        "spec": {"groups": groups},
    }
    return _HEAD + yaml.safe_dump(rule, sort_keys=False, width=1000)


def main() -> int:
    """Write the file; returns the exit code."""
    OBJECT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
