"""People's files: what they say is read, and what is wrong with one is told with its name."""

import os
from pathlib import Path

import pytest

from actors.scm.identity import (
    MAX_ROLE_BYTES,
    MAX_USER_BYTES,
    BadIdentityFile,
    personal_override,
    read_directory,
)

ALICE = """
display_name: Alice Example
aliases: [al]
accounts:
  svn: alice
  git: [alice, "Alice Example"]
  email: [Alice@Example.org]
roles: [maintainer]
meta: {team: core, since: 2024-01-15}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".agentx" / "users").mkdir(parents=True)
    (tmp_path / ".agentx" / "roles" / "alice").mkdir(parents=True)
    write(tmp_path, "users/alice.yaml", ALICE)
    return tmp_path


def write(checkout: Path, name: str, text: str | bytes) -> Path:
    path = checkout / ".agentx" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_what_a_file_says(checkout: Path) -> None:
    """R001-013: users and roles; what a file does not say is not set."""
    write(checkout, "users/bob.yml", "display_name: Bob\n")
    write(checkout, "users/.hidden.yaml", "{{{")
    write(checkout, "roles/alice/reviewer.md", "---\nlabels: [review, c++]\n---\nReads with care.\n")
    write(checkout, "roles/alice/owner.md", "Answers for it.\n---\nlabels: [none]\n")
    found = read_directory(checkout)
    alice, bob = found.people
    assert alice.spec["accounts"] == {
        "svn": ["alice"],
        "git": ["alice", "Alice Example"],
        "email": ["Alice@Example.org"],
    }
    assert alice.spec["meta"] == {"team": "core", "since": "2024-01-15"}
    assert alice.source == ".agentx/users/alice.yaml"
    assert (bob.user_id, bob.spec) == ("bob", {"display_name": "Bob"})
    owner, reviewer = found.roles
    assert (owner.role, owner.labels, owner.profile[:7]) == ("owner", ("maintainer",), "Answers")
    assert (reviewer.role, reviewer.labels) == ("reviewer", ("review", "c++"))
    assert reviewer.profile.startswith("---\n")


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadIdentityFile):
        read_directory(tmp_path)
    (tmp_path / ".agentx").mkdir()
    assert read_directory(tmp_path).people == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("users/bad.yaml", "nickname: al\n"),
        ("users/bad.yaml", "accounts: {jira: al}\n"),
        ("users/bad.yaml", "accounts: [al]\n"),
        ("users/bad.yaml", "accounts: {svn: 17}\n"),
        ("users/bad.yaml", "accounts: {svn: ['']}\n"),
        ("users/bad.yaml", 'accounts: {svn: ["a\\0b"]}\n'),
        ("users/bad.yaml", 'meta: {a: "a\\0b"}\n'),
        ("users/bad.yaml", "meta: {a: .nan}\n"),
        ("users/bad.yaml", "meta: {a: !!binary /w==}\n"),
        ("users/bad.yaml", "is_active: maybe\n"),
        ("users/bad.yaml", "user_id: alice\n"),
        ("users/bad.yaml", "- a\n- b\n"),
        ("users/bad.yaml", ""),
        ("users/bad.yaml", "1: a\n"),
        ("users/bad.yaml", "{{{"),
        ("users/bad.yaml", "a: b\n---\nc: d\n"),
        ("users/bad.yaml", "display_name: !!python/object/apply:os.system [id]\n"),
        ("users/bad.yaml", "aliases: &a [x]\nroles: *a\n"),
        ("users/bad.yaml", "meta: " + "[" * 60_000),
        ("users/bad.yaml", "meta: " + "{a: " * 20 + "1" + "}" * 20),
        ("users/bad.yaml", "- " * 30_000 + "a"),
        ("users/bad.yaml", b"display_name: \xff\n"),
        ("users/bad.yaml", "display_name: " + "x" * 201),
        ("users/bad.yaml", "# " + "x" * MAX_USER_BYTES),
        ("users/-bad.yaml", "display_name: a\n"),
        ("users/b d.yaml", "display_name: a\n"),
        ("users/bad.txt", "display_name: a\n"),
        ("users/alice.yml", "display_name: a\n"),
        ("roles/bob/owner.md", "nobody is bob"),
        ("roles/owner.md", "of whom?"),
        ("roles/alice/owner.md", "x" * (MAX_ROLE_BYTES + 1)),
        ("roles/alice/owner.md", b"\xff"),
        ("roles/alice/owner.md", "a\0b"),
        ("roles/alice/owner.md", "---\nlabel: [x]\n---\n"),
        ("roles/alice/owner.md", "---\nlabels: x\n---\n"),
    ],
)
def test_a_wrong_file_is_named(checkout: Path, name: str, text: str | bytes) -> None:
    """R001-013"""
    path = write(checkout, name, text)
    with pytest.raises(BadIdentityFile) as refused:
        read_directory(checkout)
    assert str(path) in str(refused.value) or str(path.parent) in str(refused.value)


def test_two_files_of_one_role(checkout: Path) -> None:
    write(checkout, "roles/alice/owner.md", "a")
    write(checkout, "roles/alice/owner.txt", "b")
    with pytest.raises(BadIdentityFile):
        read_directory(checkout)


@pytest.mark.parametrize("name", ["users/link.yaml", "roles/alice/link.md", "roles/link"])
def test_links_and_pipes_are_not_followed(checkout: Path, name: str, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("display_name: secret\n")
    link = checkout / ".agentx" / name
    link.symlink_to(target)
    with pytest.raises(BadIdentityFile) as refused:
        read_directory(checkout)
    assert "secret" not in str(refused.value)
    link.unlink()
    if not name.endswith("link"):
        os.mkfifo(link)
        with pytest.raises(BadIdentityFile):
            read_directory(checkout)


def test_the_personal_override(tmp_path: Path) -> None:
    """R001-015: optional, and judged like the others."""
    assert personal_override(tmp_path) is None
    (tmp_path / ".agentx").mkdir()
    file = tmp_path / ".agentx" / "user.config.yaml"
    file.write_text("user_id: alice\n")
    assert personal_override(tmp_path) == {"user_id": "alice"}
    file.write_text("!!python/name:os.system\n")
    with pytest.raises(BadIdentityFile):
        personal_override(tmp_path)
