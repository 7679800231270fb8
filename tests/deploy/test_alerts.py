"""Every alert fires when it should, stays silent when it should, and has a runbook."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from supervisor.cli.app import app
from tests.deploy.tools import DEPLOY, ROOT, RULES, alerts, ask, passes

# all of it is text: a series of "0x20" is no hexadecimal number
CASES: dict[str, Any] = yaml.load(
    Path(__file__).with_name("alerts.yaml").read_text(),
    yaml.BaseLoader,  # noqa: S506  makes nothing but text
)
ALERTS = alerts()
SEED_THRESHOLDS = [
    ("R001-131", "ScmSyncLag", "scm_sync_lag_seconds", "3600"),
    ("R001-132", "ScmSyncBatchSlow", "scm_sync_batch_duration", "300"),
    ("R001-133", "ScmSyncErrors", "scm_sync_error_rate", "0.05"),
    ("R001-134", "ScmSyncPending", "scm_sync_pending_repos", "10"),
    ("R001-135", "ScmCursorOld", "scm_cursor_age_seconds", "86400"),
]


def test_the_rules_and_the_configuration_are_valid() -> None:
    passes("promtool", "check", "rules", *RULES)
    passes("promtool", "check", "config", DEPLOY / "prometheus/prometheus.yaml")


def test_every_alert_has_cases_both_ways() -> None:
    assert CASES.keys() == ALERTS.keys()
    lacking = [name for name, cases in CASES.items() if not (cases.get("fires") and cases.get("silent"))]
    assert not lacking


def test_all_fire_and_stay_silent(tmp_path: Path) -> None:
    """By `promtool test rules`, over the rules that are deployed; what fails is named by its file."""
    passes("promtool", "test", "rules", *(written(tmp_path, name, cases) for name, cases in CASES.items()))


def test_a_case_that_is_wrong_is_told(tmp_path: Path) -> None:
    """What fires is called silent, and the other way round: promtool must say no to both."""
    for way, other in (("fires", "silent"), ("silent", "fires")):
        wrong = {other: CASES["TenureNoLeader"][way]}
        answer = ask("promtool", "test", "rules", written(tmp_path, "TenureNoLeader", wrong))
        assert answer.returncode != 0


@pytest.mark.parametrize("name", ALERTS)
def test_it_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    section = runbook(ROOT / page).get(anchor)
    assert section is not None, f"no section #{anchor} in {page}"
    for part in ("**Means.**", "**Look.**", "**Do.**"):
        assert part in section, f"#{anchor} lacks {part}"


def test_no_runbook_is_of_an_alert_that_is_gone() -> None:
    sections = {
        anchor for anchor in runbook(ROOT / "docs/runbooks.md") if anchor.startswith(("tenure", "scm"))
    }
    assert sections == {name.lower() for name in ALERTS}


@pytest.mark.parametrize("page", ["runbooks", "deploy"])
def test_every_command_and_page_that_is_named_exists(page: str) -> None:
    """At three in the morning nobody looks up what a command is called now."""
    text = (ROOT / f"docs/{page}.md").read_text()
    commands = re.findall(r"`tenure\s([^`|]+)", text)
    assert commands
    for command in commands:
        here: Any = typer.main.get_command(app)
        for word in command.split():
            if word.startswith("-"):
                assert word in [
                    option for one in here.params for option in (*one.opts, *one.secondary_opts)
                ], command
            elif below := getattr(here, "commands", None):
                assert word in below, command
                here = below[word]
    console = (ROOT / "docs/console.md").read_text()
    pages = set(re.findall(r"page `(/[a-z]+)`", text, re.IGNORECASE)) - {
        "/targets"
    }  # Prometheus has that one
    assert all(f"`{one}`" in console for one in pages)


@pytest.mark.parametrize(("requirement", "name", "metric", "threshold"), SEED_THRESHOLDS)
def test_the_thresholds_of_syncs(requirement: str, name: str, metric: str, threshold: str) -> None:
    """R001-131, R001-132, R001-133, R001-134, R001-135"""
    assert re.fullmatch(rf"max by \([^)]*\) \({metric}\) > {re.escape(threshold)}", ALERTS[name]["expr"])


def runbook(page: Path) -> dict[str, str]:
    """Its sections by their anchors."""
    parts = re.split(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)[1:]
    return {
        title.lower().replace(" ", "-"): text for title, text in zip(parts[::2], parts[1::2], strict=True)
    }


def written(directory: Path, name: str, cases: dict[str, Any]) -> Path:
    """The cases as a test file of promtool (JSON is YAML)."""
    tests = [
        {
            "interval": "15s",
            "name": f"{name} {way}: {case.get('why', '')}",
            "input_series": [
                {"series": selector.replace("{", '{job="tenure",', 1), "values": values}
                for selector, values in case["series"].items()
            ],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": case["at"],
                    "exp_samples": [{"labels": "{}", "value": 1}] if way == "fires" else [],
                }
            ],
        }
        for way, several in cases.items()
        for case in several
    ]
    file = directory / f"{name}.json"
    content = {"rule_files": list(map(str, RULES)), "evaluation_interval": "15s", "tests": tests}
    file.write_text(json.dumps(content))
    return file
