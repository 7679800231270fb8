"""Something to look at: a small git repository beside the state, registered and synced. Done again, it adds
nothing; where git is not installed, or the state lies where no address leads, there is none.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync

from actors.scm.address import AddressRules, UnsafeAddress, parse
from supervisor.artifacts.backends import chosen_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.config import Settings
from supervisor.errors import Conflict
from supervisor.store import Store

ACTOR: Final = "sample"
REPO: Final = "sample"
GIT_SECONDS: Final = 30.0
# who, when, why, and what the file says then
COMMITS: Final[Sequence[tuple[str, int, str, str]]] = (
    ("Ada", 1_735_689_600, "Begin with a list", "bread\nmilk\n"),
    ("Ben", 1_735_776_000, "Add what was forgotten", "bread\nmilk\ncoffee\n"),
    ("Ada", 1_735_862_400, "The milk is here already", "bread\ncoffee\n"),
)


async def sample(store: Store, settings: Settings) -> None:
    place = (settings.state_dir / "scm" / "sample.git").resolve()
    url = f"file://{place}"
    if shutil.which("git") is None or not _leads_there(url):
        return
    await run_sync(_made, place)
    try:
        await store.row("add_repo", ACTOR, REPO, "git", url, "sample", None, "{}")
    except Conflict:
        return
    # without a place for artifacts a sync that wants diffs is refused
    diffs = chosen_artifacts(load_artifact_settings(), settings.state_dir) is not None
    config = {"allow_local_files": True, "diff_fetch_enabled": diffs}
    await store.row("save_sync_task", ACTOR, REPO, "git", None, None, json.dumps(config))
    await store.row("request_sync", ACTOR, REPO, "git", None, None)


def _leads_there(url: str) -> bool:
    try:
        parse(url, "git", AddressRules(allow_file=True))
    except UnsafeAddress:
        return False
    return True


def _made(place: Path) -> None:
    """All of it or nothing: made beside its place, and then put there."""
    if place.exists():
        return
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="sample-", dir=place.parent))
    try:
        _git(draft, "init", "--quiet", "--bare", "--initial-branch=main")
        _git(draft, "fast-import", "--quiet", feed=_history().encode())
        draft.replace(place)
    except OSError:
        if not place.exists():  # else another start was quicker
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _git(repository: Path, *arguments: str, feed: bytes = b"") -> None:
    command = ["git", f"--git-dir={repository}", *arguments]
    alone = {"PATH": _path(), "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(command, input=feed, env=alone, check=True, capture_output=True, timeout=GIT_SECONDS)


def _path() -> str:
    return str(Path(shutil.which("git") or "/usr/bin/git").parent)


def _history() -> str:
    return "".join(
        f"commit refs/heads/main\ncommitter {who} <{who.lower()}@example.org> {when} +0000\n"
        f"data {len(why)}\n{why}\nM 100644 inline list.txt\ndata {len(content)}\n{content}\n"
        for who, when, why, content in COMMITS
    )
