"""`[scm.sync]`: each key with its default and its range, and what a task changes for itself."""

from pathlib import Path
from typing import Any

import pytest

from actors.scm.config import OVERLAPS, Sync, for_task, of_section, sync_config
from supervisor.errors import BadSettings

# the requirement, its key, default, least and most
RANGES: list[tuple[str, str, int, int, int]] = [
    ("R001-148", "parallelism", 4, 1, 16),
    ("R001-149", "batch_size", 100, 10, 1000),
    ("R001-150", "interval_seconds", 300, 0, 86_400),
    ("R001-151", "retry_count", 3, 0, 10),
    ("R001-152", "retry_interval", 5, 1, 60),
    ("R001-153", "default_overlap", 0, 0, 100),
    ("R001-156", "lock_timeout", 300, 60, 3600),
    ("R001-157", "run_history_days", 90, 7, 365),
    ("R001-158", "max_lag_seconds", 3600, 300, 86_400),
    ("R001-159", "bulk_threshold", 100, 50, 500),
    ("R001-161", "diff_size_limit_mb", 10, 1, 50),
]

EXAMPLE = """
[scm.sync]
parallelism = 4
batch_size = 100
interval_seconds = 300
retry_count = 3
retry_interval = 5
retry_backoff = "exponential"
retry_max_interval = 60
retry_jitter = 0.1
default_overlap = 0
mode = "strict"
lock_timeout = 300
run_history_days = 90
max_lag_seconds = 3600
bulk_threshold = 100
diff_fetch_enabled = true
diff_size_limit_mb = 10

[scm.sync.svn]
log_limit = 500

[scm.sync.git]
fetch_stats = true

[scm.sync.gitlab]
per_page = 100
rate_limit_rpm = 600
"""


@pytest.mark.parametrize(("line", "name", "default", "least", "most"), RANGES, ids=str)
def test_a_number_has_a_default_and_a_range(
    line: str, name: str, default: int, least: int, most: int
) -> None:
    """R001-148 .. R001-153, R001-156 .. R001-159, R001-161"""
    assert getattr(Sync(), name) == default, line
    for value in (least, most):
        assert getattr(of_section({name: value}), name) == value
    for wrong in (least - 1, most + 1, str(default), float(default), True, None, [default]):
        with pytest.raises(BadSettings) as refused:
            of_section({name: wrong})
        assert f"scm.sync.{name}" in str(refused.value)


def test_the_modes() -> None:
    """R001-154, R001-155"""
    assert Sync().mode == "strict"
    assert of_section({"mode": "best_effort"}).mode == "best_effort"
    for wrong in ("lenient", "STRICT", "", 1, None):
        with pytest.raises(BadSettings):
            of_section({"mode": wrong})


def test_whether_diffs_are_fetched() -> None:
    """R001-160"""
    assert Sync().diff_fetch_enabled is True
    assert of_section({"diff_fetch_enabled": False}).diff_fetch_enabled is False
    for wrong in ("false", 0, None):
        with pytest.raises(BadSettings):
            of_section({"diff_fetch_enabled": wrong})


def test_how_it_backs_off() -> None:
    """R001-162, R001-163, R001-164"""
    default = Sync()
    assert (default.retry_backoff, default.retry_max_interval, default.retry_jitter) == (
        "exponential",
        60,
        0.1,
    )
    for word in ("exponential", "fixed", "linear"):
        assert of_section({"retry_backoff": word}).retry_backoff == word
    for wrong in ("quadratic", "", 2):
        with pytest.raises(BadSettings):
            of_section({"retry_backoff": wrong})
    for jitter in (0, 1, 0.5):
        assert of_section({"retry_jitter": jitter}).retry_jitter == jitter
    for off in (-0.1, 1.1, float("nan"), float("inf"), "much"):
        with pytest.raises(BadSettings):
            of_section({"retry_jitter": off})
    for off in (0, -1, "long"):
        with pytest.raises(BadSettings):
            of_section({"retry_max_interval": off})
    rules = of_section({"retry_interval": 7, "retry_max_interval": 30}).retry_rules
    assert (rules.interval, rules.max_interval, rules.jitter) == (7.0, 30.0, 0.1)


@pytest.mark.parametrize(
    ("section", "name", "default", "others", "wrong"),
    [
        ("svn", "log_limit", 500, (1, 50), (0, -5, "all", 10_001)),
        ("git", "fetch_stats", True, (False,), ("no", 1)),
        ("gitlab", "per_page", 100, (1, 20), (0, 101, "20")),
        ("gitlab", "rate_limit_rpm", 600, (1, 60), (0, -1, "fast")),
    ],
)
def test_what_is_of_one_source(
    section: str, name: str, default: Any, others: tuple[Any, ...], wrong: tuple[Any, ...]
) -> None:
    """R001-165, R001-166, R001-167, R001-168"""
    assert getattr(getattr(Sync(), section), name) == default
    for value in others:
        assert getattr(getattr(of_section({section: {name: value}}), section), name) == value
    for off in wrong:
        with pytest.raises(BadSettings) as refused:
            of_section({section: {name: off}})
        assert f"scm.sync.{section}.{name}" in str(refused.value)


def test_the_example_file(tmp_path: Path) -> None:
    """R001-169: all four sections, and what they say are the defaults."""
    file = tmp_path / "tenure.toml"
    file.write_text(EXAMPLE)
    assert sync_config(file) == Sync()
    other = tmp_path / "other.toml"
    changed = {"= 500": "= 50", "= 600": "= 60", "stats = true": "stats = false", "size = 100": "size = 10"}
    text = EXAMPLE
    for word, instead in changed.items():
        text = text.replace(word, instead)
    other.write_text(text)
    found = sync_config(other)
    assert (found.svn.log_limit, found.gitlab.rate_limit_rpm) == (50, 60)
    assert (found.git.fetch_stats, found.batch_size) == (False, 10)
    assert sync_config(tmp_path / "none.toml") == Sync(), "no file, no change"


@pytest.mark.parametrize(
    "text",
    [
        "[scm.sync]\nbatchsize = 100\n",
        "[scm.sync.svn]\nlimit = 5\n",
        "[scm.sync.hg]\na = 1\n",
        "[scm.sync]\nbatch_size = 9\n",
        "[scm.sync]\nbatch_size = \n",
        "[scm.sync]\nsvn = 3\n",
    ],
)
def test_what_is_misspelt_or_out_of_range_is_refused(tmp_path: Path, text: str) -> None:
    """R001-169: a misspelt bound would be none."""
    file = tmp_path / "tenure.toml"
    file.write_text(text)
    with pytest.raises(BadSettings):
        sync_config(file)


def test_a_task_changes_it_for_itself() -> None:
    """R001-142: the task's words win, within the same ranges."""
    base = of_section({"batch_size": 50, "svn": {"log_limit": 77}})
    config, overlap = for_task(base, "svn", {"batch_size": 20, "overlap": 3, "auto": True})
    assert (config.batch_size, config.svn.log_limit, overlap) == (20, 77, 3)
    config, _ = for_task(base, "git", {"git": {"fetch_stats": False}})
    assert (config.git.fetch_stats, config.git.bulk_lines) == (False, 1000)
    for wrong in ({"batch_size": 5}, {"unknown": 1}, {"overlap": True}, {"overlap": "3"}, {"overlap": -1}):
        with pytest.raises(BadSettings):
            for_task(base, "svn", wrong)


@pytest.mark.parametrize("source", list(OVERLAPS))
def test_how_much_is_read_again(source: str) -> None:
    """R001-127, R001-153: the default for all, bounded by each source; more for one task is refused."""
    _, overlap = for_task(of_section({"default_overlap": 100}), source, {})
    assert overlap == OVERLAPS[source]
    with pytest.raises(BadSettings):
        for_task(Sync(), source, {"overlap": OVERLAPS[source] + 1})
