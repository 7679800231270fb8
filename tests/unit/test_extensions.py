"""Actors and migrations of installed packages: what fits is found, what does not is named."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.packages import BadPackage, installed_migrations
from supervisor.cli.app import main
from supervisor.config import load_settings
from supervisor.wiring import actors, chosen_actors, lease_rights

HEAD = """
from supervisor import Actor, Claim, Done, Outcome, Tools
from supervisor.plain_lease import plain_lease
async def handle(claim, tools):
    return Done()
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """As pip would leave it: a module and its metadata on the path."""
    monkeypatch.chdir(tmp_path)

    def put(
        name: str, source: str, group: str = "tenure.actors", point: str | None = None, **files: str
    ) -> None:
        sys.modules.pop(f"ext_{name}", None)
        root = tmp_path / f"site-{name}"
        module = root / f"ext_{name}"
        module.mkdir(parents=True)
        (module / "__init__.py").write_text(source)
        for file, text in files.items():
            (module / "migrations").mkdir(exist_ok=True)
            (module / "migrations" / f"{file}.sql").write_text(text)
        info = root / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{point or f'{name} = ext_{name}:ACTORS'}\n")
        monkeypatch.syspath_prepend(str(root))
        actors.cache_clear()

    yield put
    actors.cache_clear()


def test_actors_of_packages_are_among_the_others(install: Install) -> None:
    lease = 'plain_lease("b.rows", {"x": "text"})'
    install("one", HEAD + "ACTORS = Actor('a', handle)")
    install("two", HEAD + f"ACTORS = [Actor('b', handle), Actor('b', handle, lease={lease})]")
    assert {"command", "a", "b", "b:b.rows"} == {
        name for name in actors() if not name.startswith(("capture", "dedup", "media", "scm"))
    }
    assert set(chosen_actors(load_settings(domains="b"))) == {"b", "b:b.rows"}
    assert {"b.rows", "dedup.jobs"} <= set(lease_rights())
    assert "GRANT UPDATE" in lease_rights()["b.rows"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("raise RuntimeError('boom')", "boom"),
        ("def broken(:", "SyntaxError"),
        ("", "ACTORS"),
        ("ACTORS = 7", "no Actor"),
        ("ACTORS = 'text'", "no Actor"),
        ("ACTORS = [1]", "no Actor"),
        (HEAD + "ACTORS = (Actor('x', handle) for _ in [1])", "only once"),
        ("class A:\n    def __iter__(self): return iter([1 / 0])\nACTORS = A()", "ZeroDivisionError"),
        (HEAD + "ACTORS = Actor('command', handle)", "belongs to tenure"),
        (HEAD + "ACTORS = Actor('Bad Domain', handle)", "cannot be a domain"),
        (HEAD + "ACTORS = [Actor('x', handle), Actor('x', handle)]", "two actors x"),
    ],
)
def test_a_package_that_does_not_fit_is_named(
    install: Install, capsys: pytest.CaptureFixture[str], source: str, says: str
) -> None:
    install("badone", source)
    with pytest.raises(BadPackage, match="badone") as refused:
        actors()
    assert says in str(refused.value)
    assert main(["job", "add", "x", "--domain", "command", "--payload", '{"argv": ["ls"]}']) == 1
    printed = capsys.readouterr()
    assert "badone" in printed.err
    assert "Traceback" not in printed.err


def test_two_packages_with_one_domain_clash(install: Install) -> None:
    install("alpha", HEAD + "ACTORS = Actor('same', handle)")
    install("beta", HEAD + "ACTORS = Actor('same', handle)")
    with pytest.raises(BadPackage, match=r"beta.*the domain same belongs to alpha"):
        actors()


def test_migrations_of_packages_are_found(install: Install) -> None:
    install("one", "", "tenure.migrations", "zeta = ext_one", **{"0001_a": "SELECT 1;"})
    install(
        "two", "", "tenure.migrations", "alpha = ext_two", **{"0001_a": "SELECT 1;", "0002_b": "SELECT 2;"}
    )
    found = installed_migrations()
    assert [(name, source.schema_version()) for name, source in found.items()] == [("alpha", 2), ("zeta", 1)]


@pytest.mark.parametrize(
    ("point", "files", "says"),
    [
        ("tenure = ext_bad", {"0001_a": ""}, "cannot be a namespace"),
        ("Bad-Name = ext_bad", {"0001_a": ""}, "cannot be a namespace"),
        ("x = ext_bad", {}, "has no migrations"),
        ("x = ext_bad", {"0002_a": ""}, "not numbered"),
        ("x = ext_bad", {"first": ""}, "NNNN_what"),
        ("x = no_such_module", {"0001_a": ""}, "ModuleNotFoundError"),
    ],
)
def test_migrations_that_do_not_fit_are_named(
    install: Install, point: str, files: dict[str, str], says: str
) -> None:
    install("bad", "", "tenure.migrations", point, **files)
    with pytest.raises(BadPackage, match="bad") as refused:
        installed_migrations()
    assert says in str(refused.value)


def test_two_packages_with_one_namespace_clash(install: Install) -> None:
    install("one", "", "tenure.migrations", "x = ext_one", **{"0001_a": "SELECT 1;"})
    install("two", "", "tenure.migrations", "x = ext_two", **{"0001_a": "SELECT 1;"})
    with pytest.raises(BadPackage, match="namespace x"):
        installed_migrations()
