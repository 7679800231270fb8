"""What other users put into a state directory, or in its place, before it was closed: refused with words."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.embedded_home import account_for, database_owners
from supervisor.login_codes import LoginCodes
from supervisor.serving import addresses, register
from supervisor.state_dir import (
    DIRECTORIES,
    FILES,
    OpenWay,
    UnusableDirectory,
    UnusableEntry,
    close_state_dir,
    make_state_dir,
)
from tests.support.unprivileged import NOBODY, unprivileged

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of other users")
STRANGER = 54321


@pytest.fixture
def place() -> Iterator[Path]:
    """Below directories that every user may enter."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def state(place: Path) -> Path:
    made = place / "state"
    made.mkdir()
    made.chmod(0o777)
    return made


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "pipe", "directory"])
def test_a_file_that_is_no_plain_one_is_refused(state: Path, name: str, kind: str) -> None:
    """As `lock` a link had its target emptied; as the server's log it had lines of anybody's appended."""
    victim = state.parent / "victim"
    victim.write_text("kept")
    victim.chmod(0o644)
    path = state / name
    match kind:
        case "link":
            path.symlink_to(victim)
        case "dangling":
            path.symlink_to(victim.with_name("none"))
        case "hard link":
            path.hardlink_to(victim)
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
    with pytest.raises(UnusableEntry, match=str(path)) as refused:
        close_state_dir(state)
    assert "move it away" in refused.value.advice
    assert refused.value.exit_code == 1
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("kept", 0o644)
    assert not victim.with_name("none").exists()
    assert not state.stat().st_mode & 0o066, "closed before anybody looks"


@needs_root
@pytest.mark.parametrize("name", [*DIRECTORIES, "postgres", *FILES])
@pytest.mark.parametrize("kind", ["itself", "link"])
def test_what_another_user_made_is_refused(state: Path, name: str, kind: str) -> None:
    path = state / name
    path.parent.mkdir(exist_ok=True)
    elsewhere = state.parent / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        path.symlink_to(elsewhere)
    elif name in FILES:
        path.touch(mode=0o600)
    else:
        path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(UnusableEntry, match=f"{path} .*uid {NOBODY}"):
        close_state_dir(state)


@needs_root
@pytest.mark.parametrize("name", [name for name in (*DIRECTORIES, "postgres") if name != "libraries"])
def test_what_another_user_put_into_a_directory_of_ours_is_refused(state: Path, name: str) -> None:
    """Artifacts and mirrors could be swapped, and a code of his own let him in."""
    theirs = state / name / "theirs"
    theirs.mkdir(parents=True)
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(UnusableEntry, match=f"{theirs} "):
        close_state_dir(state)


@needs_root
def test_a_library_may_hold_what_other_users_put_there(state: Path) -> None:
    theirs = state / "libraries" / "theirs"
    theirs.mkdir(parents=True)
    os.chown(theirs, NOBODY, NOBODY)
    assert close_state_dir(state) == []


def test_a_link_of_ours_leads_to_a_directory(state: Path) -> None:
    elsewhere = state.parent / "photos"
    elsewhere.mkdir(mode=0o777)
    elsewhere.chmod(0o777)
    (state / "libraries").symlink_to(elsewhere)
    assert close_state_dir(state) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o777
    (state / "artifacts").symlink_to(__file__)
    with pytest.raises(UnusableEntry, match="not a directory"):
        close_state_dir(state)
    (state / "artifacts").unlink()
    (state / "artifacts").touch()
    with pytest.raises(UnusableEntry, match="not a directory"):
        close_state_dir(state)


@needs_root
def test_the_data_of_a_stranger_are_nobodys_database(state: Path) -> None:
    """The server ran as whoever owned the data, and he held the database and all that it starts."""
    data = state / "postgres" / "data"
    data.mkdir(parents=True)
    own = account_for(data)
    os.chown(data, STRANGER, STRANGER)
    with pytest.raises(UnusableEntry, match=f"uid {STRANGER}"):
        account_for(data)
    assert own.uid in database_owners(state)
    assert STRANGER not in database_owners(state)
    with pytest.raises(UnusableEntry, match=f"uid {STRANGER}"):
        close_state_dir(state)
    os.chown(data, own.uid, own.gid)
    assert close_state_dir(state) == []
    assert account_for(data) == own


def test_a_place_that_others_may_exchange_is_refused(place: Path) -> None:
    """Whoever may write to what is above can put another directory there, with all that is believed."""
    above = place / "above"
    state = above / "within" / "state"
    above.mkdir()
    above.chmod(0o777)
    for use in (make_state_dir, close_state_dir):
        with pytest.raises(OpenWay, match=f"every user may write to {above},") as refused:
            use(state)
        assert f"close {above} to others" in refused.value.advice
    assert list(above.iterdir()) == [], "nothing was made"
    above.chmod(0o1777)
    make_state_dir(state)
    assert close_state_dir(state) == []
    alias = place / "alias"
    alias.symlink_to(state)
    assert close_state_dir(alias) == []
    above.chmod(0o777)
    for name in (state, alias):
        with pytest.raises(OpenWay, match=f"every user may write to {above},"):
            close_state_dir(name)


def test_a_relative_name_is_looked_at_like_a_whole_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "work").mkdir()
    monkeypatch.chdir(place / "work")
    make_state_dir(Path(".tenure"))
    assert close_state_dir(Path(".tenure")) == []
    assert close_state_dir(Path("../work/.tenure")) == []
    place.chmod(0o777)
    with pytest.raises(OpenWay, match=f"every user may write to {place},"):
        close_state_dir(Path(".tenure"))
    place.chmod(0o755)


@needs_root
def test_a_link_of_another_user_on_the_way_is_refused(place: Path) -> None:
    state = place / "state"
    make_state_dir(state)
    place.chmod(0o1777)
    link = place / "link"
    link.symlink_to(state)
    assert close_state_dir(link) == []
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(OpenWay, match=f"the link {link} belongs to another user"):
        close_state_dir(link)


def test_links_in_a_circle_end(place: Path) -> None:
    (place / "one").symlink_to(place / "two")
    (place / "two").symlink_to(place / "one")
    assert close_state_dir(place / "one" / "state") == []
    with pytest.raises(OSError, match="one"):
        make_state_dir(place / "one")


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2777])
def test_a_directory_of_root_that_cannot_be_closed_is_refused(state: Path, mode: int) -> None:
    state.chmod(mode)
    with unprivileged(), pytest.raises(UnusableDirectory, match="every user may write to it"):
        close_state_dir(state)


@needs_root
def test_a_volume_that_a_container_was_given_by_its_group_is_taken(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume with fsGroup is 2775 root:GID; an emptyDir with it is 2777."""
    gid = os.getgid()
    monkeypatch.setattr("os.getegid", lambda: gid)
    os.chown(state, 0, gid)
    state.chmod(0o2775)
    with unprivileged():
        assert close_state_dir(state) == []
    monkeypatch.setattr(Path, "is_mount", lambda path: path == state)
    state.chmod(0o2777)
    with unprivileged():
        assert close_state_dir(state) == []
        make_state_dir(state / "below")
        assert close_state_dir(state / "below") == []
    os.chown(state, 0, STRANGER)
    for mode, who in ((0o2777, "every user"), (0o2775, f"a group \\(gid {STRANGER}\\)")):
        state.chmod(mode)
        with unprivileged(), pytest.raises(UnusableDirectory, match=f"{who} may write to it"):
            close_state_dir(state)


def test_a_code_that_may_be_anybodys_lets_nobody_in(state: Path) -> None:
    """A file that he moved there, under a name of his own, would let him in."""
    (state / "logins").mkdir(mode=0o700)
    code = "x" * 43
    (state / "logins" / hashlib.sha256(code.encode()).hexdigest()).touch(mode=0o600)
    close_state_dir(state)
    codes = LoginCodes(state)
    assert not codes.take(code)
    kept = codes.link("http://127.0.0.1:8080/").rpartition("=")[2]
    close_state_dir(state)
    assert codes.take(kept), "a directory that is closed keeps its codes"


@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_a_link_is_no_code_and_no_address(state: Path, kind: str) -> None:
    close_state_dir(state)
    end = register(state, "http://127.0.0.1:8080/")
    codes = LoginCodes(state)
    codes.link("http://127.0.0.1:8080/")
    code = "x" * 43
    path = state / "logins" / hashlib.sha256(code.encode()).hexdigest()
    served = next((state / "serving").iterdir())
    if kind == "link":
        path.symlink_to(served)
        served.rename(state / "moved")
        served.symlink_to(state / "moved")
    else:
        path.hardlink_to(served)
    assert addresses(state) == []
    assert not codes.take(code)
    end()
