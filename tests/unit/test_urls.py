"""Which logins a replica takes: those of its settings; the worker's alone where it only works."""

from pathlib import Path
from typing import Any

import pytest

from actors.dedup import leases
from supervisor.config import load_settings
from supervisor.errors import BadSettings
from supervisor.urls import RuntimeUrls, login_fault, runtime_urls
from supervisor.wiring import chosen_actors

WORKER, LISTEN, OTHER = (f"postgresql://{name}:s3cr3t-w0rd@127.0.0.1/db" for name in ("w", "l", "o"))
MAY_WORK: dict[str, Any] = {
    "superuser": False,
    "controls": False,
    "rewrites": False,
    "works": True,
    "beyond": [],
}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_that_only_works_has_the_workers_login_for_all() -> None:
    settings = load_settings(lead=False, worker_database_url=WORKER)
    assert runtime_urls(settings) == RuntimeUrls(None, WORKER, WORKER, WORKER)


def test_it_listens_past_a_pooler() -> None:
    settings = load_settings(lead=False, worker_database_url=WORKER, listen_database_url=LISTEN)
    assert runtime_urls(settings) == RuntimeUrls(None, WORKER, LISTEN, WORKER)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("database_url", "TENURE_DATABASE_URL"),
        ("migrate_database_url", "TENURE_MIGRATE_DATABASE_URL"),
        ("maintenance_database_url", "TENURE_MAINTENANCE_DATABASE_URL"),
        ("api_token", "TENURE_API_TOKEN"),
    ],
)
def test_what_it_must_not_hold_is_named_and_never_shown(setting: str, name: str) -> None:
    settings = load_settings(lead=False, worker_database_url=WORKER, **{setting: OTHER})
    with pytest.raises(BadSettings, match="must not hold") as refusal:
        runtime_urls(settings)
    assert name in str(refusal.value)
    assert "s3cr3t-w0rd" not in str(refusal.value)


def test_the_parts_of_a_database_are_a_login_too(tmp_path: Path) -> None:
    (tmp_path / "tenure.toml").write_text(
        "[db]\nproject_key = 'p'\nhost = 'h'\nport = 1\nuser = 'u'\npassword = 'x'\n"
        "admin_user = 'a'\nadmin_password = 'y'\n"
    )
    with pytest.raises(BadSettings, match=r"must not hold .*\[db\]"):
        runtime_urls(load_settings(lead=False, worker_database_url=WORKER))


def test_it_needs_its_login() -> None:
    with pytest.raises(BadSettings, match="needs TENURE_WORKER_DATABASE_URL"):
        runtime_urls(load_settings(lead=False))


@pytest.mark.parametrize("name", ["embedded.json", "token"])
def test_it_shares_no_directory_with_secrets_of_others(tmp_path: Path, name: str) -> None:
    """One file holds the superuser's password, the other a token of role admin."""
    state = tmp_path / "state"
    state.mkdir()
    settings = load_settings(lead=False, state_dir=state, worker_database_url=WORKER)
    assert runtime_urls(settings).worker == WORKER
    (state / name).touch()
    with pytest.raises(BadSettings, match=f"{name}.*directory of its own"):
        runtime_urls(settings)


@pytest.mark.parametrize(
    ("right", "fault"),
    [
        ({}, None),
        ({"superuser": True, "controls": True}, "is a superuser"),
        ({"controls": True}, "may do more than work"),
        ({"rewrites": True}, "may do more than work"),
        ({"beyond": ["CREATEROLE"]}, "may do more than work (CREATEROLE)"),
        ({"works": False}, "may not work"),
        ({"works": None}, "may not work"),
    ],
)
def test_its_login_works_and_does_no_more(right: dict[str, Any], fault: str | None) -> None:
    found = login_fault({**MAY_WORK, **right})
    assert (found or "").startswith(fault or "")
    assert (found is None) == (fault is None)


def test_it_serves_no_actor_whose_login_it_refuses(tmp_path: Path) -> None:
    """A request for a checkpoint would fail there for good, and waits for a replica with that login."""
    given: dict[str, Any] = {"worker_database_url": WORKER, "libraries_dir": tmp_path}
    everything = chosen_actors(load_settings(**given))
    working = chosen_actors(load_settings(lead=False, **given))
    assert [everything[name].lease for name in everything.keys() - working.keys()] == [leases.WAL]


def test_it_has_no_libraries_of_an_embedded_database() -> None:
    assert load_settings().libraries_dir is not None
    assert load_settings(lead=False, worker_database_url=WORKER).libraries_dir is None
