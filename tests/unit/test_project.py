"""One database a project: the rules of its name, where it is, and what OpenMemory is told."""

import os
import shlex
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from schemas.login import parse_url
from supervisor.cli.app import main
from supervisor.config import load_settings
from supervisor.errors import BadSettings
from supervisor.project import (
    BadProjectKey,
    KeyMismatch,
    NoMapping,
    ProjectDatabase,
    check_key,
    choose_database,
    database_for_test,
    in_database,
    is_host,
    openmemory_environment,
)
from supervisor.project_settings import REQUIRED, load_database_settings

FILE = {
    "project_key": "proj_a",
    "host": "db.example",
    "port": 5433,
    "user": "engram",
    "password": "p@ss/w#rd?%:",
    "admin_user": "boss",
    "admin_password": "s3cr3t-w0rd",
}
TENURE_URL = "postgresql://u:s3cr3t-w0rd@elsewhere:1/there"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TENURE_") and name != "TENURE_TEST_ROOT":
            monkeypatch.delenv(name)
    for name in ("PROJECT_KEY", "POSTGRES_DB", "ENGRAM_TESTING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(place: Path, **values: object) -> None:
    lines = (f"{name} = {value if isinstance(value, int) else repr(value)}" for name, value in values.items())
    (place / "tenure.toml").write_text("\n".join(["[db]", *lines]))


@pytest.mark.parametrize("key", ["proj_a", "a", "p2", "a" * 63, "test_a", "a_test", "latest_1", "engram"])
def test_a_key_names_a_database(key: str) -> None:
    """R001-051"""
    assert check_key(key, testing=False) == key


@pytest.mark.parametrize(
    "key",
    [
        "", " ", "A", "Proj", "1a", "_a", "a-b", "a b", "a.b", "a/b", 'a"b', "a'; DROP DATABASE x; --", "a\n",
        "a\0", "é", "a" * 64, "postgres", "template0", "template1", "template_x", "pg_x", "-", "a%41",
    ],
)  # fmt: skip
def test_what_names_none_is_refused(key: str) -> None:
    """R001-051: a plain name that is not the server's own and is not cut; testing makes no difference"""
    for testing in (False, True):
        with pytest.raises(BadProjectKey) as refused:
            check_key(key, testing=testing)
        assert (refused.value.exit_code, bool(refused.value.advice)) == (2, True)


def test_the_database_of_a_test() -> None:
    """R001-051: `<project_key>_test_<id>`, which production does not take for a project"""
    name = database_for_test("proj_a", "12345")
    assert name == "proj_a_test_12345"
    assert check_key(name, testing=True) == name
    with pytest.raises(BadProjectKey, match="ENGRAM_TESTING=1"):
        check_key(name, testing=False)
    for key, test_id in (
        ("proj_a", "x; --"),
        ("proj_a", "A"),
        ("a" * 60, "12345"),
        (name, "2"),
        ("postgres", "1"),
    ):
        with pytest.raises(BadProjectKey):
            database_for_test(key, test_id)


def test_all_keys_together_say_where(place: Path) -> None:
    """R001-052, R001-053: database is the key, dsn has user and password percent-encoded"""
    write(place, **FILE)
    parts = load_database_settings().place()
    assert parts.database == "proj_a"
    assert parts.dsn == "postgresql://engram:p%40ss%2Fw%23rd%3F%25%3A@db.example:5433/proj_a"
    assert parts.admin_dsn == "postgresql://boss:s3cr3t-w0rd@db.example:5433/proj_a"
    settings = load_settings()
    assert settings.database_url is not None
    assert settings.migrate_database_url is not None
    assert settings.database_url.get_secret_value() == parts.dsn
    assert settings.migrate_database_url.get_secret_value() == parts.admin_dsn
    for shown in (repr(parts), str(parts), repr(settings), repr(load_database_settings())):
        assert "p@ss" not in shown
        assert "p%40ss" not in shown
        assert "s3cr3t" not in shown


def test_the_environment_overrides_the_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-052: TENURE_DB_..., and the key also as PROJECT_KEY"""
    write(place, **FILE)
    for name in ("PROJECT_KEY", "TENURE_PROJECT_KEY", "TENURE_DB_PROJECT_KEY"):
        monkeypatch.setenv(name, f"by_{name.lower()}")
        assert load_database_settings().place().database == f"by_{name.lower()}"
    monkeypatch.setenv("TENURE_DB_HOST", "::1")
    monkeypatch.setenv("TENURE_DB_PORT", "6000")
    assert load_database_settings().place().dsn.endswith("@[::1]:6000/by_tenure_db_project_key")
    assert load_database_settings().place("proj_b").database == "proj_b"


@pytest.mark.parametrize("password", ["p@ss/w#rd?%", "a b&c=d", "é\u2168", "'\"\\;$(x)", ":@[]", "%41", "+"])
def test_any_letters_come_back_from_the_dsn(password: str) -> None:
    """R001-053"""
    dsn = ProjectDatabase("proj_a", "h", 1, password, password, "b", "b").dsn
    found = parse_url(dsn, "test")
    assert (found.user, found.password, found.database) == (password, password, "proj_a")
    assert (urlsplit(dsn).hostname, urlsplit(dsn).port) == ("h", 1)


def test_every_missing_key_is_named_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-052: one error names all of them, whatever is asked for; empty is missing"""
    for missing in ({"host"}, {"password", "admin_password"}, set(REQUIRED) - {"user"}):
        write(place, **{name: value for name, value in FILE.items() if name not in missing})
        with pytest.raises(BadSettings) as refused:
            load_settings()
        named = {name for name in REQUIRED if f"db.{name} (TENURE_DB_{name.upper()})" in str(refused.value)}
        assert named == missing
        assert refused.value.exit_code == 2
    write(place, **{**FILE, "password": "", "user": ""})
    monkeypatch.setenv("TENURE_DB_ADMIN_USER", "")
    with pytest.raises(BadSettings, match=r"missing db\.user .*, db\.password "):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 0), ("port", 65536), ("port", "many"), ("host", "a@b"), ("host", "a/b"), ("host", "a,b"),
        ("host", "h?sslmode=disable"), ("host", "/run/postgresql"), ("host", "fe80::1%eth0"),
        ("passwort", "x"), ("testing", 1), ("postgres_db", "x"), ("database", "x"), ("user", 7),
    ],
)  # fmt: skip
def test_a_wrong_or_unknown_key_is_named(place: Path, name: str, value: object) -> None:
    """R001-052: and what it says is not shown"""
    write(place, **{**FILE, name: value})
    with pytest.raises(BadSettings, match=f"db.{name}") as refused:
        load_settings()
    assert "w0rd" not in str(refused.value)


def test_hosts() -> None:
    assert all(map(is_host, ("localhost", "db-1.example.com", "db.", "127.0.0.1", "::1", "postgres_1")))
    assert not any(map(is_host, ("", "-a", "a b", "a:b", "[::1]", "a\n", "..")))


def test_a_url_wins(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-053: TENURE_DATABASE_URL over [db], which need not be complete then"""
    write(place, host="db.example")
    monkeypatch.setenv("TENURE_DATABASE_URL", TENURE_URL)
    settings = load_settings()
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == TENURE_URL
    assert settings.migrate_database_url is None


def test_a_key_alone_is_not_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts have a project key too: with it alone, everything is as without it."""
    monkeypatch.setenv("PROJECT_KEY", "proj_a")
    monkeypatch.setenv("POSTGRES_DB", "other")
    assert load_settings().database_url is None


def test_the_key_and_the_database_are_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-055: two names for one project's database are refused"""
    write(place, **FILE)
    monkeypatch.setenv("POSTGRES_DB", "proj_a")
    assert load_database_settings().place().database == "proj_a"
    monkeypatch.setenv("POSTGRES_DB", "proj_b")
    with pytest.raises(KeyMismatch, match="proj_a and POSTGRES_DB is proj_b") as refused:
        load_settings()
    assert refused.value.exit_code == 2
    assert "POSTGRES_DB" in refused.value.advice


def test_only_a_single_project_has_a_database_by_default(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-056: engram where it is said that there is one project; never elsewhere"""
    write(place, **FILE)
    assert load_database_settings().place().database == "proj_a"
    monkeypatch.setenv("TENURE_DB_SINGLE_PROJECT", "1")
    assert load_database_settings().place().database == "engram"
    monkeypatch.setenv("POSTGRES_DB", "mine")
    assert load_database_settings().place().database == "mine"
    with pytest.raises(KeyMismatch):
        load_database_settings().place("proj_b")
    assert choose_database("p", None, single_project=False, testing=False) == "p"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p%2F@h:1/a", "postgresql://u:p%2F@h:1/proj_a"),
        ("postgresql://u@h", "postgresql://u@h/proj_a"),
        (
            "postgres://u@h1:1,h2:2/a?sslmode=require&dbname=b",
            "postgres://u@h1:1,h2:2/proj_a?sslmode=require",
        ),
        ("postgresql://u@[::1],h2/a", "postgresql://u@[::1],h2/proj_a"),
        ("postgresql:///a?host=/run/pg&database=b&user=x", "postgresql:///proj_a?host=/run/pg&user=x"),
    ],
)
def test_the_same_server_in_another_database(url: str, expected: str) -> None:
    """R001-051"""
    assert in_database(url, "proj_a") == expected


def test_what_openmemory_is_told() -> None:
    """R001-054: the password only where it is asked for"""
    url = ProjectDatabase("proj_a", "::1", 5433, "om user", "a'b $x", "b", "b").dsn
    expected = {
        "OM_PG_HOST": "::1",
        "OM_PG_PORT": "5433",
        "OM_PG_DB": "proj_a",
        "OM_PG_USER": "om user",
        "OM_PG_SCHEMA": "openmemory",
        "OM_PG_TABLE": "openmemory_memories",
        "OM_VECTOR_TABLE": "openmemory_vectors",
    }
    assert openmemory_environment(url, with_password=False) == expected
    assert openmemory_environment(url, with_password=True) == {**expected, "OM_PG_PASSWORD": "a'b $x"}
    assert openmemory_environment("postgresql://u@h/d", with_password=False)["OM_PG_PORT"] == "5432"
    for url in (
        "postgresql://u@h1,h2/d",
        "postgresql:///d?host=/run",
        "postgresql://h/d",
        "postgresql://u@h",
    ):
        with pytest.raises(NoMapping):
            openmemory_environment(url, with_password=False)


def test_a_shell_reads_what_is_printed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R001-054: --print-openmemory-env, from [db], safe for a shell whatever the password is"""
    password = "a'b $(touch owned) `id` \" \\ *"
    (place / "tenure.toml").write_text(
        f"[db]\npassword = '''{password}'''\n"
        + "\n".join(
            f"{name} = {value if isinstance(value, int) else repr(value)}"
            for name, value in FILE.items()
            if name != "password"
        )
    )
    assert main(["migrate", "--print-openmemory-env"]) == 0
    assert "PASSWORD" not in capsys.readouterr().out
    assert main(["migrate", "--print-openmemory-env", "--with-password", "--project-key", "proj_b"]) == 0
    printed = capsys.readouterr()
    script = f'set -a\n{printed.out}\nprintf \'%s|%s|%s\' "$OM_PG_DB" "$OM_PG_USER" "$OM_PG_PASSWORD"'
    shell = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True, cwd=place)
    assert shell.stdout == f"proj_b|engram|{password}"
    assert not (place / "owned").exists()
    assert shlex.split(printed.out)[0] == "OM_PG_HOST=db.example"
    assert printed.err == ""


@pytest.mark.parametrize(
    ("args", "environment", "word"),
    [
        (["--project-key", "postgres"], {}, "server's own"),
        (["--project-key", "a; DROP"], {}, "no plain name"),
        (["--project-key", "proj_a_test_1"], {}, "ENGRAM_TESTING=1"),
        (["--project-key", "proj_a"], {"POSTGRES_DB": "proj_b"}, "POSTGRES_DB is proj_b"),
        (
            ["--project-key", "proj_a"],
            {"POSTGRES_DB": "b", "TENURE_DB_SINGLE_PROJECT": "1"},
            "POSTGRES_DB is b",
        ),
        ([], {"PROJECT_KEY": "proj_a", "POSTGRES_DB": "proj_b"}, "POSTGRES_DB is proj_b"),
        ([], {"TENURE_DB_HOST": "h"}, "missing db.project_key"),
        (["--project-key", "proj_a"], {}, "missing db.host"),
        (["--schema-prefix", "ci"], {}, "ENGRAM_TESTING=1"),
        (["--schema-prefix", "ci"], {"ENGRAM_TESTING": "0"}, "ENGRAM_TESTING=1"),
        (["--schema-prefix", "ci; --"], {"ENGRAM_TESTING": "1"}, "lower-case"),
        (["--with-password"], {"TENURE_DATABASE_URL": TENURE_URL}, "--print-openmemory-env"),
        (["--print-openmemory-env"], {"TENURE_MIGRATE_DATABASE_URL": TENURE_URL}, "TENURE_DATABASE_URL"),
        ([], {"ENGRAM_TESTING": "perhaps"}, "ENGRAM_TESTING"),
    ],
)
def test_what_is_refused_before_any_database(
    args: list[str],
    environment: dict[str, str],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R001-051, R001-052, R001-055, R001-061: exit 2, and the reason"""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["migrate", *args]) == 2
    printed = capsys.readouterr()
    assert (printed.out, word in printed.err) == ("", True)
    assert "s3cr3t-w0rd" not in printed.err
