"""What dashboards and alerts ask for is what the program exports, and Prometheus can read it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase

from actors import DOMAINS
from supervisor.domain_figures import register_figures
from supervisor.metrics import Metrics
from tests.deploy.promql import labels_in, metrics_in
from tests.deploy.tools import DEPLOY, passes, rules

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/tenure.json").read_text())
RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
ADDED = {"job", "instance", "namespace", "le"}  # by Prometheus, by Kubernetes, by histograms
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def shown() -> dict[str, str]:
    """The dashboard's expressions, with the variables as Grafana fills them in."""
    found = {}
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$namespace", ".*")
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


EXPRESSIONS = {**shown(), **{rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The series of a replica, and the labels of each."""
    metrics = Metrics()
    register_figures(DOMAINS, metrics.registry)
    found: dict[str, set[str]] = {}
    for collector in metrics.registry._collector_to_names:
        assert isinstance(collector, MetricWrapperBase)
        for family in collector.describe():
            names = (family.name + suffix for suffix in SUFFIXES[family.type])
            found |= {name: set(collector._labelnames) for name in names}
    return found


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_metric_is_exported(where: str, exported: dict[str, set[str]]) -> None:
    """A name that no replica exports and no rule records is an alert that never fires."""
    missing = set(metrics_in(EXPRESSIONS[where])) - exported.keys() - RECORDED.keys() - {"up"}
    assert not missing


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_label_is_there(where: str, exported: dict[str, set[str]]) -> None:
    """Grouping by a label that none of its metrics has lumps everything together, and says nothing."""
    raw = set(metrics_in(EXPRESSIONS[where]))
    for name in raw & RECORDED.keys():
        raw |= set(metrics_in(RECORDED[name]))
    known = ADDED.union(*(exported.get(name, set()) for name in raw))
    assert labels_in(EXPRESSIONS[where]) <= known


def test_figures_of_the_database_are_never_added_up() -> None:
    """Every replica shows the same ones: a sum is as many times too much as there are replicas."""
    whole = r"tenure_runs|tenure_run_lag_seconds|tenure_runs_confirming|tenure_leases_expired|scm_\w+"
    added = re.compile(rf"\b(?:sum|avg|count)\b[^(]*(?:\([^)]*\))?\s*\(\s*(?:{whole})\b(?!_total)")
    assert not [where for where, expression in EXPRESSIONS.items() if added.search(expression)]


def test_every_metric_is_shown(exported: dict[str, set[str]]) -> None:
    """Nothing is exported that no panel shows, by itself or through a rule."""
    asked = [*shown().values(), *RECORDED.values()]
    seen = {name for expression in asked for name in metrics_in(expression)}
    bases = {name: re.sub(r"_(?:bucket|count|sum)$", "", name) for name in exported}
    assert {bases[name] for name in exported} == {bases[name] for name in exported if name in seen}


def test_prometheus_parses_every_expression(tmp_path: Path) -> None:
    wrapped = [{"record": f"shown:{number}", "expr": one} for number, one in enumerate(shown().values())]
    file = tmp_path / "dashboard.json"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": wrapped}]}))
    answer = passes("promtool", "check", "rules", file)
    assert f"{len(wrapped)} rules found" in answer


def test_the_dashboard_asks_the_chosen_data_source() -> None:
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "namespace"]
    for panel in panels():
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_no_panels_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


@pytest.mark.parametrize(
    ("expression", "names", "labels"),
    [
        (
            'sum by (job, a) (rate(x_total{b=~"c(d)",e!="f"}[5m] offset 1h)) > 2',
            ["x_total"],
            {"job", "a", "b", "e"},
        ),
        ("absent(up == 1) or on (job) a:b:c unless y", ["up", "a:b:c", "y"], {"job"}),
        ("time() - z > 1e3", ["z"], set()),
    ],
)
def test_names_are_found(expression: str, names: list[str], labels: set[str]) -> None:
    assert (list(metrics_in(expression)), labels_in(expression)) == (names, labels)
