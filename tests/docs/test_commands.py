"""What the documentation names is there: commands and their options, settings, files, links and anchors."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from actors.capture.config import CaptureConfig
from supervisor.artifacts.settings import ArtifactSettings
from supervisor.cli.app import app
from supervisor.config import Settings
from supervisor.project_settings import DatabaseSettings
from tests.docs.pages import (
    PAGES,
    ROOT,
    anchors_of,
    commands_of,
    links_of,
    paths_of,
    settings_of,
    text_of,
)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@cache
def tree() -> Any:
    return typer.main.get_command(app)


def fault_of(words: list[str]) -> str | None:
    """Why this is no command of ours; None where it is one."""
    here = [tree()]
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
            missing = [one for one in here if option not in options_of(one)]
            if missing:
                return f"{missing[0].name} has no option {option}"
            continue
        groups = [one for one in here if getattr(one, "commands", None)]
        if not groups or re.fullmatch(r"[A-Z]+", word) or word == "...":
            continue  # an argument, or a stand-in for one
        names = word.split("|")
        if all(name in groups[0].commands for name in names):
            here = [groups[0].commands[name] for name in names]
        elif not groups[0].params and not getattr(groups[0], "invoke_without_command", False):
            return f"there is no command {word}"
    return None


def options_of(command: Any) -> set[str]:
    known = {"--help", "-h", "--json"}
    for one in command.params:
        known |= {*one.opts, *one.secondary_opts}
    return known


@cache
def known_settings() -> frozenset[str]:
    known: set[str] = set()
    for kind in (Settings, ArtifactSettings, DatabaseSettings, CaptureConfig):
        prefix = str(kind.model_config.get("env_prefix", ""))
        for name, field in kind.model_fields.items():
            alias = field.validation_alias
            choices = getattr(alias, "choices", None) or [f"{prefix}{name}".upper()]
            known |= {str(choice) for choice in choices}
    given = re.findall(r'"(TENURE_[A-Z_]+)"', (ROOT / "actors/command/payload.py").read_text())
    return frozenset(known | set(given))


@every_page
def test_every_command_it_names_exists_with_its_options(page: Path) -> None:
    faults = [
        f"tenure {' '.join(words)}: {fault}" for words in commands_of(page) if (fault := fault_of(words))
    ]
    assert not faults


@every_page
def test_every_setting_it_names_exists(page: Path) -> None:
    for name in settings_of(page):
        if name.endswith("_"):  # TENURE_DB_...: a family of them
            assert any(known.startswith(name) for known in known_settings()), name
        elif not name.startswith("TENURE_TEST_"):
            assert name in known_settings()


def test_every_setting_of_a_replica_is_described() -> None:
    described = set[str]().union(*(settings_of(page) for page in PAGES))
    assert {f"TENURE_{name}".upper() for name in Settings.model_fields} <= described


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target), link
    for path in paths_of(page):
        assert (ROOT / path).exists(), path


def test_every_page_can_be_found_from_the_readme() -> None:
    found, looked = {ROOT / "README.md"}, set[Path]()
    while rest := found - looked:
        page = rest.pop()
        looked.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)}
        found |= {target for target in targets if target in PAGES}
    assert found == set(PAGES)


@pytest.mark.parametrize("page", ["operations", "architecture"])
def test_roles_metrics_and_functions_it_names_exist(page: str) -> None:
    sources = [*ROOT.glob("schemas/**/*.sql"), *ROOT.glob("supervisor/**/*.py"), *ROOT.glob("schemas/*.py")]
    code = "\n".join(text_of(source) for source in sources)
    text = text_of(ROOT / f"docs/{page}.md")
    named = set(re.findall(r"\btenure_[a-z_]+", text)) | set(re.findall(r"\bsupervisor\.[a-z_]+", text))
    for name in sorted(named):
        bare = name.removesuffix("_total").removesuffix("_bucket")
        assert bare in code, name


def test_the_readers_of_pages_read_them() -> None:
    """The checks above would hold of pages without a word."""
    commands = [words for page in PAGES for words in commands_of(page)]
    assert len(commands) > 100
    assert fault_of(["run", "shwo", "7"]) == "there is no command shwo"
    assert fault_of(["run", "list", "--stat", "PENDING"]) == "list has no option --stat"
    assert fault_of(["setting", "get|set", "x"]) is None
    assert "TENURE_SLOTS" in known_settings()
    assert any(links_of(page) for page in PAGES)
