"""People from files into the tables that decide, and the authors of what was read before they were known."""

from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.integration.scm.ledger import Ledger, revision
from tests.support.command_line import Cli, command_line


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".agentx").mkdir(parents=True)
    return command_line(database, monkeypatch, tmp_path)


def write(name: str, text: str) -> None:
    path = Path.cwd() / "checkout" / ".agentx" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def people(ledger: Ledger) -> dict[str, list[str]]:
    rows = await ledger.admin.fetch(
        "SELECT u.user_id,"
        " array_remove(array_agg(a.type || ':' || a.name ORDER BY a.type, a.name), NULL) AS names"
        " FROM identity.users u LEFT JOIN identity.accounts a USING (user_id) GROUP BY u.user_id"
    )
    return {row["user_id"]: row["names"] for row in rows}


async def test_files_are_read_into_the_tables(cli: Cli, ledger: Ledger) -> None:
    """R001-002, R001-013, R001-014: the tables are what counts, the files are read into them."""
    write("users/alice.yaml", "display_name: Alice\naccounts: {svn: alice, email: Alice@Example.org}\n")
    write("roles/alice/owner.md", "---\nlabels: [core]\n---\nAnswers for it.\n")
    dry = (await cli("identity", "load", "checkout", "--dry-run", "--json")).json()
    assert [one["user_id"] for one in dry["users"]] == ["alice"]
    assert await people(ledger) == {}
    for _ in range(2):
        assert (await cli("identity", "load", "checkout")).code == 0
        assert await people(ledger) == {"alice": ["email:alice@example.org", "svn:alice"]}
    role = await ledger.admin.fetchrow("SELECT * FROM identity.role_profiles")
    assert role is not None
    assert (role["role"], role["labels"], role["source"]) == (
        "owner",
        ["core"],
        ".agentx/roles/alice/owner.md",
    )
    assert "Answers for it." in role["profile"]

    write("users/alice.yaml", "accounts: {svn: al}\n")
    await cli("identity", "load", "checkout")
    assert await people(ledger) == {"alice": ["svn:al"]}
    assert await ledger.admin.fetchval("SELECT display_name FROM identity.users") == "Alice", (
        "not named: kept"
    )
    listed = (await cli("identity", "list", "--json")).json()
    assert [one["accounts"] for one in listed["users"]] == [[{"type": "svn", "name": "al"}]]
    assert [one["role"] for one in listed["roles"]] == ["owner"]
    assert "svn:al" in (await cli("identity", "list")).out


async def test_a_wrong_file_changes_nothing(cli: Cli, ledger: Ledger) -> None:
    """R001-013"""
    write("users/alice.yaml", "display_name: Alice\n")
    write("users/bob.yaml", "nickname: b\n")
    answer = await cli("identity", "load", "checkout")
    assert answer.code == 2
    assert "bob.yaml" in answer.err
    assert "nickname" in answer.err
    assert await people(ledger) == {}
    assert (await cli("identity", "load", "nowhere")).code == 2


async def test_a_name_belongs_to_one_person(cli: Cli, ledger: Ledger) -> None:
    """R001-014"""
    write("users/alice.yaml", "accounts: {svn: al}\n")
    await cli("identity", "load", "checkout")
    write("users/bob.yaml", "accounts: {svn: al}\n")
    answer = await cli("identity", "load", "checkout")
    assert (answer.code, "alice" in answer.err) == (4, True)
    assert (await people(ledger))["alice"] == ["svn:al"]


async def test_the_personal_override_is_shown_and_never_stored(cli: Cli, ledger: Ledger) -> None:
    """R001-015"""
    write("users/alice.yaml", "display_name: Alice\n")
    own = Path.cwd() / "home" / ".agentx" / "user.config.yaml"
    own.write_text("user_id: mallory\ndisplay_name: Me\n")
    await cli("identity", "load", "checkout")
    listed = (await cli("identity", "list", "--json")).json()
    assert listed["override"] == {"user_id": "mallory", "display_name": "Me"}
    assert [one["user_id"] for one in listed["users"]] == ["alice"]
    assert "not stored" in (await cli("identity", "list")).out
    assert await people(ledger) == {"alice": []}
    own.unlink()
    assert (await cli("identity", "list", "--json")).json()["override"] is None


async def test_authors_are_found_afterwards(cli: Cli, ledger: Ledger) -> None:
    """R001-045: unmapped authors are kept raw, and found when their names are known."""
    await ledger.repo("r")
    held = await ledger.begun("r")
    await ledger.begin(held)
    await ledger.record(held, 1, [revision(1, author="al"), revision(2, author="nobody")], 2)
    assert await ledger.count("scm.svn_revisions WHERE author_user_id IS NOT NULL") == 0
    write("users/alice.yaml", "accounts: {svn: al}\n")
    await cli("identity", "load", "checkout")
    assert (await cli("identity", "remap", "--json")).json() == {"changed": 1}
    rows = await ledger.admin.fetch(
        "SELECT author_raw, author_user_id FROM scm.svn_revisions ORDER BY rev_num"
    )
    assert [tuple(row) for row in rows] == [("al", "alice"), ("nobody", None)]
    assert (await cli("identity", "remap", "--json")).json() == {"changed": 0}
