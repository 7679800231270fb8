"""What lies in the state directory is this user's alone: modes, owners, the token, and who serves there."""

import os
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor import state_dir, umask
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import ArtifactSettings
from supervisor.serving import addresses, register, url_of
from supervisor.state_dir import (
    UnusableDirectory,
    close_state_dir,
    make_state_dir,
    private_dir,
    refuse_shared,
)
from supervisor.token_file import UnusableToken, load_token
from tests.support.unprivileged import NOBODY, unprivileged

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def open_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worst that a shell can hand on."""
    monkeypatch.setattr(umask, "_started_with", None)
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path / "above" / ".tenure"
    make_state_dir(made)
    return made


@pytest.fixture
def passable() -> Iterator[Path]:
    """Below directories that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        made = Path(place) / "state"
        make_state_dir(made)
        yield made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_closed(state: Path) -> None:
    """Root lets its database's account pass, and nobody look."""
    assert mode(state) == mode(state.parent) == (0o711 if os.geteuid() == 0 else 0o700)


def test_one_that_is_there_is_closed(state: Path) -> None:
    """Mirrors of repositories and libraries were readable by every local user."""
    state.chmod(0o777)
    for name in state_dir.DIRECTORIES:
        (state / name).mkdir(mode=0o777, parents=True)
    for name in state_dir.FILES:
        (state / name).touch(mode=0o666)
    (state / "postgres").mkdir(mode=0o777)
    elsewhere = state.parent / "photos"
    elsewhere.mkdir(mode=0o755)
    (state / "libraries").rmdir()
    (state / "libraries").symlink_to(elsewhere)
    assert close_state_dir(state) == []
    passable = 0o711 if os.geteuid() == 0 else 0o700
    assert mode(state) == mode(state / "postgres") == passable
    assert {mode(state / name) for name in state_dir.DIRECTORIES if name != "libraries"} == {0o700}
    assert {mode(state / name) for name in state_dir.FILES} == {0o600}
    assert mode(elsewhere) == 0o755, "where a link leads is the operator's choice"
    assert close_state_dir(state.parent / "none") == []


@needs_root
def test_one_of_another_user_is_refused(state: Path) -> None:
    os.chown(state, NOBODY, NOBODY)
    for use in (make_state_dir, close_state_dir):
        with pytest.raises(UnusableDirectory, match="another user"):
            use(state)


@needs_root
def test_a_directory_of_root_is_taken_as_it_is_by_others(passable: Path) -> None:
    """A container's volume: it cannot be closed, so what is in it is checked at each use."""
    passable.chmod(0o755)
    theirs = passable / "logins"
    theirs.mkdir(mode=0o755)
    (passable / "serving").mkdir()
    os.chown(passable / "serving", NOBODY, NOBODY)
    with unprivileged():
        assert close_state_dir(passable) == [theirs]
        with pytest.raises(UnusableDirectory, match="another user"):
            private_dir(theirs)
        assert mode(private_dir(passable / "serving")) == 0o700
    passable.chmod(0o1777)
    with unprivileged():
        for use in (close_state_dir, refuse_shared):
            with pytest.raises(UnusableDirectory, match="every user may write"):
                use(passable)


def test_a_directory_that_others_can_enter_is_not_used(state: Path) -> None:
    (state / "logins").mkdir(mode=0o711)
    (state / "serving").symlink_to(state / "logins")
    for name in ("logins", "serving"):
        with pytest.raises(UnusableDirectory, match="can enter it"):
            private_dir(state / name)
    assert mode(private_dir(state / "scm")) == 0o700


def test_a_token_is_made_once_and_kept(state: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(load_token, [state] * 32))
    (token,) = tokens
    assert len(token) >= 40
    assert load_token(state) == token
    assert mode(state / "token") == 0o600
    assert [path.name for path in state.iterdir()] == ["token"], "no drafts are left"


@pytest.mark.parametrize("wrong", ["mode", "link", "directory", "pipe", "empty", "short", "binary"])
def test_a_token_that_others_may_know_is_refused(state: Path, wrong: str) -> None:
    """With words: what is wrong, and what to do."""
    path = state / "token"
    token = load_token(state)
    match wrong:
        case "mode":
            path.chmod(0o640)
        case "link":
            path.rename(state / "elsewhere")
            path.symlink_to(state / "elsewhere")
        case "directory":
            path.unlink()
            path.mkdir()
        case "pipe":
            path.unlink()
            os.mkfifo(path, 0o600)
        case "empty" | "short" | "binary":
            path.write_bytes({"empty": b"", "short": b"x" * 15, "binary": b"\xff" * 40}[wrong])
    with pytest.raises(UnusableToken, match="token") as refused:
        load_token(state)
    assert "remove the file" in refused.value.advice
    assert token not in str(refused.value)


@needs_root
def test_a_token_of_another_user_is_refused(state: Path) -> None:
    load_token(state)
    os.chown(state / "token", NOBODY, NOBODY)
    with pytest.raises(UnusableToken, match="another user owns it"):
        load_token(state)


def test_who_serves_is_known_until_it_ends(state: Path) -> None:
    """A killed one leaves its file, and nobody believes it."""
    ends = [register(state, url) for url in ("http://127.0.0.1:18081/", "http://127.0.0.1:8080/")]
    assert addresses(state) == ["http://127.0.0.1:8080/", "http://127.0.0.1:18081/"]
    ends[1]()
    assert addresses(state) == ["http://127.0.0.1:18081/"]
    ends[0]()
    assert addresses(state) == []
    assert list((state / "serving").iterdir()) == []
    assert {mode(state / "serving")} == {0o700}


def test_an_address_that_another_user_wrote_is_not_believed(state: Path) -> None:
    """A link that leads to a server of his would give him its code."""
    end = register(state, "http://127.0.0.1:8080/")
    (state / "serving").chmod(0o755)
    assert addresses(state) == []
    end()


def test_an_address_is_one_that_a_browser_on_this_machine_can_open() -> None:
    urls = [url_of(host, 8080) for host in ("127.0.0.1", "0.0.0.0", "::", "::1", "[::1]", "localhost")]
    assert urls == [
        "http://127.0.0.1:8080/",
        "http://127.0.0.1:8080/",
        "http://[::1]:8080/",
        "http://[::1]:8080/",
        "http://[::1]:8080/",
        "http://localhost:8080/",
    ]


def test_the_umask_of_the_operator_is_remembered() -> None:
    os.umask(0o027)
    assert umask.started_with() == 0o027, "asked without a change"
    assert umask.restrict() == umask.restrict() == umask.started_with() == 0o027
    assert os.umask(0o077) == 0o077


@pytest.mark.parametrize(("inside", "modes"), [(True, (0o700, 0o600)), (False, (0o750, 0o640))])
async def test_artifacts_of_the_state_are_closed_and_a_place_of_its_own_is_its_groups(
    state: Path, inside: bool, modes: tuple[int, int]
) -> None:
    """By the umask that was there before ours, and not by ours."""
    umask.restrict()
    root = state / "artifacts" if inside else state.parent / "shelf" / "artifacts"
    artifacts = open_artifacts(ArtifactSettings(backend="local", root=root), state)
    await artifacts.put("exports/7.csv", b"x")
    assert (mode(root), mode(root / "exports"), mode(root / "exports/7.csv")) == (modes[0], *modes)
    assert inside or mode(root.parent) == 0o777, "the directories above are as they were"
    await artifacts.aclose()
