"""An installed package with a domain, a table and a migration of its own: from its wheel to work done."""

import asyncio
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from schemas import Source
from schemas.migrate import MigrateFailed, MigrationChanged, PackageTooNew, PackageTooOld, check, migrate
from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.place import connected
from tests.support.replica import replica
from tests.support.slowness import patient

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests/support/example_package"
TABLE = "CREATE SCHEMA extra; CREATE TABLE extra.one (id integer);"


@dataclass(frozen=True)
class Installed:
    """A virtual environment with Tenure and the package, and nothing of this test's own."""

    python: Path

    def tenure(self, database: Urls, directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        environment |= {
            "TENURE_DATABASE_URL": database.control,
            "TENURE_WORKER_DATABASE_URL": database.worker,
            "TENURE_MIGRATE_DATABASE_URL": database.admin,
        }
        return subprocess.run(
            [str(self.python), "-m", "supervisor.cli", *args],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patient(100),
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, built without a network, in a fresh virtual environment."""
    directory = tmp_path_factory.mktemp("package")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    offline = ["--no-deps", "--no-index"]
    wheel = ["wheel", *offline, "--no-build-isolation", "--wheel-dir", str(directory), str(PACKAGE)]
    subprocess.run([*pip, *wheel], check=True, timeout=patient(100))
    [built] = directory.glob("tenure_greetings-1.0-*.whl")
    home = directory / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    # Tenure itself and what it needs: from the environment that runs this test, also where that is editable
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "tenure.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    subprocess.run(
        [*pip, "--python", str(python), "install", *offline, str(built)], check=True, timeout=patient(100)
    )
    return Installed(python)


async def test_a_package_adds_a_domain_with_its_own_table(
    installed: Installed, database: Urls, tmp_path: Path
) -> None:
    """An installed package adds a domain with its own table and migration, from a clean venv."""

    async def tenure(*args: str) -> Any:
        answer = await asyncio.to_thread(installed.tenure, database, tmp_path, *args, "--json")
        assert "Traceback" not in answer.stderr
        return answer

    early = await asyncio.to_thread(installed.tenure, database, tmp_path, "up", "--port", "0")
    assert early.returncode == 1, "a replica does not start before the package's table is there"
    assert "of greetings" in early.stderr
    doctor = json.loads((await tenure("doctor")).stdout)
    assert {one["name"]: one["result"] for one in doctor["checks"]}["package greetings"] == "fail"

    report = json.loads((await tenure("migrate")).stdout)
    assert (report["packages"], report["changed"]) == ({"greetings": [1]}, True)
    again = json.loads((await tenure("migrate")).stdout)
    assert (again["packages"], again["changed"]) == ({"greetings": []}, False)
    doctor = json.loads((await tenure("doctor")).stdout)
    results = {one["name"]: one["result"] for one in doctor["checks"]}
    assert (results["package greetings"], results["lease rights"]) == ("ok", "ok")

    command = (str(installed.python), "-m", "supervisor.cli", "up")
    async with connected(database.client) as client, replica(database, tmp_path, command=command):
        await client.execute(
            "INSERT INTO greetings.letter (name) SELECT 'reader ' || n FROM generate_series(1, 20) n"
        )

        async def done() -> bool:
            rows = await client.fetch("SELECT name, status, greeting FROM greetings.letter")
            return {(row["status"], row["greeting"]) for row in rows} == {
                ("done", f"Hello, {row['name']}!") for row in rows
            }

        await eventually(done, timeout=30, what="twenty greetings")
        domains = json.loads((await tenure("domain", "list")).stdout)
        assert [one["installed"] for one in domains if one["domain"] == "greetings"] == [True]


async def test_rights_are_what_the_contract_says_after_every_migrate(
    installed: Installed, database: Urls, tmp_path: Path
) -> None:
    async def tenure(*args: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(installed.tenure, database, tmp_path, *args, "--json")

    await tenure("migrate")
    async with connected(database.admin) as admin:
        await admin.execute("GRANT UPDATE (name), DELETE ON greetings.letter TO tenure_worker")
        await admin.execute("REVOKE UPDATE (greeting) ON greetings.letter FROM tenure_worker")
    checks = {one["name"]: one for one in json.loads((await tenure("doctor")).stdout)["checks"]}
    found = checks["lease rights"]["found"]
    assert checks["lease rights"]["result"] == "fail"
    assert all(word in found for word in ("may write greetings.letter.name", "letter.greeting", "delete"))
    assert (await tenure("migrate")).returncode == 0
    checks = {one["name"]: one for one in json.loads((await tenure("doctor")).stdout)["checks"]}
    assert checks["lease rights"]["result"] == "ok"
    async with connected(database.worker) as worker:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await worker.execute("UPDATE greetings.letter SET name = 'x'")


def test_the_readme_shows_this_very_module() -> None:
    module = (PACKAGE / "greetings/__init__.py").read_text()
    migration = (PACKAGE / "greetings/migrations/0001_letter.sql").read_text()
    shown = re.findall(
        r"^```(?:python|toml|sql)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert module in shown
    assert len([line for line in module.splitlines() if line.strip()]) <= 10
    points = (
        (PACKAGE / "pyproject.toml").read_text().partition("[project.entry-points")[2].partition("[tool")[0]
    )
    assert f"[project.entry-points{points}".rstrip() + "\n" in shown
    documented = re.findall(
        r"^```(?:sql)\n(.*?)^```$", (ROOT / "docs/actors.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert migration in documented


def package(root: Path, files: Mapping[str, str]) -> dict[str, Source]:
    room = root / "migrations"
    room.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (room / name).write_text(text)
    return {"extra": Source(root)}


async def test_each_migration_of_a_package_runs_once(database: Urls, tmp_path: Path) -> None:
    extra = package(tmp_path, {"0001_one.sql": TABLE})
    assert (await migrate(database.admin, packages=extra)).packages == {"extra": (1,)}
    assert not (await migrate(database.admin, packages=extra)).changed
    extra = package(tmp_path, {"0002_two.sql": "ALTER TABLE extra.one ADD COLUMN two integer;"})
    stale = await check(database.control, packages=extra)
    with pytest.raises(PackageTooOld):
        stale.refuse_old()
    assert (await migrate(database.admin, packages=extra)).packages == {"extra": (2,)}
    (await check(database.control, packages=extra)).refuse_old()
    async with connected(database.admin) as admin:
        owner = "SELECT tableowner FROM pg_tables WHERE schemaname = 'extra'"
        assert await admin.fetchval(owner) == "tenure_owner"


async def test_a_changed_migration_of_a_package_is_refused(database: Urls, tmp_path: Path) -> None:
    await migrate(database.admin, packages=package(tmp_path, {"0001_one.sql": TABLE}))
    changed = package(
        tmp_path, {"0001_one.sql": f"{TABLE} -- another", "0002_two.sql": "CREATE TABLE extra.two ();"}
    )
    with pytest.raises(MigrationChanged, match="of extra"):
        await migrate(database.admin, packages=changed)
    async with connected(database.admin) as admin:
        assert await admin.fetchval("SELECT to_regclass('extra.two')") is None


async def test_an_older_package_is_refused_and_a_replica_of_it_works_on(
    database: Urls, tmp_path: Path
) -> None:
    files = {"0001_one.sql": TABLE, "0002_two.sql": "ALTER TABLE extra.one ADD COLUMN two integer;"}
    await migrate(database.admin, packages=package(tmp_path / "new", files))
    older = package(tmp_path / "old", {"0001_one.sql": TABLE})
    with pytest.raises(PackageTooNew):
        await migrate(database.admin, packages=older)
    (await check(database.control, packages=older)).refuse_old()


async def test_a_failed_migration_of_a_package_leaves_nothing(database: Urls, tmp_path: Path) -> None:
    broken = package(tmp_path, {"0001_one.sql": f"{TABLE} SELECT 1 / 0;"})
    with pytest.raises(MigrateFailed, match="of extra"):
        await migrate(database.admin, packages=broken)
    async with connected(database.admin) as admin:
        assert await admin.fetchval("SELECT to_regnamespace('extra')") is None
        assert (
            await admin.fetchval("SELECT count(*) FROM supervisor.schema_migration WHERE namespace = 'extra'")
            == 0
        )


async def test_rights_on_a_table_that_is_not_there_are_a_clear_failure(database: Urls) -> None:
    with pytest.raises(MigrateFailed, match=r"the rights on extra\.none"):
        await migrate(
            database.admin, packages={}, rights={"extra.none": "GRANT SELECT ON extra.none TO tenure_worker"}
        )
