"""The image's entry point, from the wheel as the Dockerfile installs it, and the files around it.

There is no container engine here: what the wheel does is tried, what the image is made of is read.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.embedded import Urls
from tests.deploy.tools import DEPLOY, ROOT, passes, read
from tests.support.eventually import eventually
from tests.support.place import connected
from tests.support.replica import replica
from tests.support.slowness import patient

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
LAST_STAGE = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[-1]
NAMESPACE = ("/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a process namespace as in a container")
COMPOSE: dict[str, Any] = read(DEPLOY / "compose.yaml")
PASSWORDS = {
    "POSTGRES_PASSWORD": "p0",
    "TENURE_CONTROL_PASSWORD": "p1",
    "TENURE_WORKER_PASSWORD": "p2",
    "TENURE_MAINTENANCE_PASSWORD": "p3",
    "TENURE_API_TOKEN": "t" * 32,
}


@pytest.fixture(scope="module")
def entry_point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tenure` of an environment without pip that has the wheel; what it needs comes from this test's own.

    The wheel is made of what the Dockerfile copies and of nothing else.
    """
    directory = tmp_path_factory.mktemp("image")
    copied_into(directory / "src")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    wheel = [
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(directory),
        str(directory / "src"),
    ]
    subprocess.run([*pip, *wheel], check=True, timeout=patient(100))
    [built] = directory.glob("tenure-*.whl")
    home = directory / "opt"
    venv.create(home, symlinks=True, with_pip=False)
    python = home / "bin/python"
    install = ["--python", str(python), "install", "--no-deps", "--no-index", str(built)]
    subprocess.run([*pip, *install], check=True, timeout=patient(100))
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    (site / "needs.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    (home / "share").symlink_to(Path(sys.prefix) / "share")  # what some wheels bring beside their code
    where = [str(python), "-c", "import supervisor; print(supervisor.__file__)"]
    found = subprocess.run(
        where, cwd=directory, capture_output=True, text=True, check=True, timeout=patient(60)
    )
    assert Path(found.stdout.strip()).is_relative_to(home), "not the checkout: the wheel"
    return home / "bin/tenure"


def copied_into(directory: Path) -> None:
    """What the Dockerfile copies from the checkout, and where to."""
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, directory / target, ignore=ignored)
            else:
                shutil.copy2(ROOT / source, directory / target)


def started_as(entry_point: Path) -> list[str]:
    """The image's command line with this entry point; its init where that is installed."""
    words = [
        word
        for name in ("ENTRYPOINT", "CMD")
        for line in re.findall(rf"^{name} (.+)$", LAST_STAGE, re.MULTILINE)
        for word in json.loads(line)
    ]
    assert words == ["tini", "--", "tenure", "up"]
    init = shutil.which("tini")
    return [*([init, "--"] if init else []), str(entry_point), "up"]


def only_child(pid: int) -> int:
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [False, pytest.param(True, marks=needs_root)], ids=["plain", "as process 1"]
)
async def test_the_entry_point_drains_on_sigterm(
    entry_point: Path, database: Urls, tmp_path: Path, first: bool
) -> None:
    """What runs ends first and its success is recorded; the replica takes its leave and exits with 0.

    The kernel gives process 1 of a namespace no signal that it does not handle itself.
    """
    go = tmp_path / "go"
    nap = {"argv": ["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"]}
    job = "SELECT FROM supervisor.save_job('test', 'nap', $1::text::jsonb, true)"
    command = [*(NAMESPACE if first else ()), *started_as(entry_point)]
    async with (
        connected(database.admin) as admin,
        replica(database, tmp_path, command=command, ready="/readyz") as process,
    ):
        await admin.execute(job, json.dumps({"domain": "command", "payload": nap}))
        run = await admin.fetchval("SELECT id FROM supervisor.enqueue('nap', '{}', 'nap-1')")

        async def state() -> str:
            return str(await admin.fetchval("SELECT state FROM supervisor.job_run WHERE id = $1", run))

        async def running() -> bool:
            assert await state() == "RUNNING"
            return True

        await eventually(running, timeout=30, what="the run to be running")
        os.kill(only_child(process.pid) if first else process.pid, signal.SIGTERM)
        await eventually(lambda: '"draining"' in process.output(), timeout=30, what="the drain to begin")
        assert await state() == "RUNNING"
        go.touch()
        code = await process.wait()
        assert code == 0, process.output()
        assert "drained" in process.output()
        assert await state() == "SUCCEEDED"
        assert await admin.fetchval("SELECT array_agg(state) FROM supervisor.worker") == ["gone"]


def test_the_dockerfile_is_clean() -> None:
    passes("hadolint", DEPLOY / "Dockerfile")


def test_the_image_is_small_and_not_root() -> None:
    """The last stage: a user, an init that forwards signals, nothing that builds."""
    assert re.search(r"^USER 10001:10001$", LAST_STAGE, re.MULTILINE)
    assert 'ENTRYPOINT ["tini", "--", "tenure"]' in LAST_STAGE
    assert not re.search(r"\b(?:gcc|g\+\+|make|build-essential|python3-dev|pip)\b", LAST_STAGE)
    pods = read(DEPLOY / "kubernetes/base/migrate.yaml")["spec"]["template"]["spec"]
    assert pods["securityContext"]["runAsUser"] == 10001


def test_everything_is_installed_by_hash() -> None:
    """Each pip of the Dockerfile takes a lock, or nothing from an index."""
    steps = re.findall(r"/build/bin/pip\b[^;\n]*(?:\\\n[^;\n]*)*", DOCKERFILE)
    assert len(steps) == 4
    assert all("--require-hashes" in step or "--no-deps --no-index" in step for step in steps)
    for name in re.findall(r"-r ([\w./]+)", DOCKERFILE):
        lock = (ROOT / name).read_text()
        assert len(re.findall(r"^\S+==", lock, re.MULTILINE)) <= lock.count("--hash=sha256:")


def test_what_the_build_copies_is_not_ignored() -> None:
    """Whatever .dockerignore does not name stays out, secrets of the working directory too."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        sources = {source.rstrip("/") for source in line.split()[:-1]}
        assert sources <= allowed
        assert all((ROOT / source).exists() for source in sources)


@pytest.mark.parametrize(
    ("database", "code", "said"), [("proj_b", 2, "POSTGRES_DB is proj_b"), ("proj_a", 3, "does not answer")]
)
def test_compose_refuses_two_names_for_one_database(
    database: str, code: int, said: str, tmp_path: Path
) -> None:
    """R001-055: told by the migration, which every replica waits for, before the database is asked."""
    values = {**PASSWORDS, "PROJECT_KEY": "proj_a", "POSTGRES_DB": database}
    service = COMPOSE["services"]["migrate"]
    # a port where nobody listens, in place of the other container
    environment = {
        name: text.replace("@postgres/", "@127.0.0.1:1/")
        for name, text in started_with("migrate", values).items()
    }
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("TENURE_", "POSTGRES_"))}
    answer = subprocess.run(
        [sys.executable, "-m", "supervisor.cli", *(filled_in(word, values) for word in service["command"])],
        env={**clean, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert (answer.returncode, said in answer.stderr) == (code, True), answer.stderr
    assert not [word for word in PASSWORDS.values() if f":{word}@" in answer.stderr]


@pytest.mark.parametrize(
    "given", [{}, {"PROJECT_KEY": "proj_a"}, {"PROJECT_KEY": "proj_a", "POSTGRES_DB": ""}]
)
def test_compose_takes_the_key_for_the_database(given: Mapping[str, str]) -> None:
    """R001-055: the key alone is enough, and all services mean the same database."""
    key = given.get("PROJECT_KEY", "tenure")
    for name in ("migrate", "replica"):
        environment = started_with(name, {**PASSWORDS, **given})
        urls = [text for setting, text in environment.items() if setting.endswith("_URL")]
        assert {url.rpartition("/")[2] for url in urls} == {key}
        assert (environment["PROJECT_KEY"], environment["POSTGRES_DB"]) == (key, key)
    assert started_with("postgres", {**PASSWORDS, **given})["POSTGRES_DB"] == key


def test_compose_starts_replicas_after_the_migration() -> None:
    services = COMPOSE["services"]
    replicas = services["replica"]
    assert replicas["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert replicas["deploy"]["replicas"] == 3
    assert replicas["stop_grace_period"] == "60s"
    for name in ("migrate", "replica"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
    assert "TENURE_MIGRATE_DATABASE_URL" not in replicas["environment"]
    assert all(port.startswith("127.0.0.1:") for port in replicas["ports"])


def started_with(service: str, values: Mapping[str, str]) -> dict[str, str]:
    given = COMPOSE["services"][service]["environment"]
    return {name: filled_in(text, values) for name, text in given.items()}


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """As compose does it: ${NAME:-default} and ${NAME:?}, the inner ones first."""
    inner = re.compile(r"\$\{(\w+)(?::-([^{}]*)|:\?)\}")

    def value(found: re.Match[str]) -> str:
        default = found[2]
        return values[found[1]] if default is None else values.get(found[1]) or default

    while inner.search(text):
        text = inner.sub(value, text)
    return text
