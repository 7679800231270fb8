"""The five schemas under a prefix: which prefixes there are, and what of the files is rewritten."""

import pytest

from schemas import SHIPPED
from schemas.prefix import Prefix, Prefixed, prefix_for
from supervisor.errors import BadInput
from supervisor.project import PrefixRefused, check_prefix


def test_prefixes() -> None:
    """R001-061, R001-062: none without ENGRAM_TESTING=1, and with it only what is a name with each schema"""
    for prefix in ("ci", "ci_7", "a" * 52):
        assert check_prefix(prefix, testing=True) == prefix
        with pytest.raises(PrefixRefused, match="ENGRAM_TESTING=1"):
            check_prefix(prefix, testing=False)
    for prefix in ("", "A", "1", "a-b", "a.b", 'a"', "a" * 53, "pg", "pg_a", "a\n"):
        with pytest.raises(PrefixRefused):
            check_prefix(prefix, testing=True)
    with pytest.raises(BadInput):
        prefix_for(SHIPPED, 'a"; --')


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT scm.rank(x.scm) FROM logbook.kv", "SELECT ci_scm.rank(x.scm) FROM ci_logbook.kv"),
        ("CREATE SCHEMA IF NOT EXISTS scm;", "CREATE SCHEMA IF NOT EXISTS ci_scm;"),
        (
            "ON ALL TABLES IN SCHEMA identity, logbook,\n media TO x",
            "ON ALL TABLES IN SCHEMA ci_identity, ci_logbook,\n media TO x",
        ),
        ("nextval('scm.runs'), 'scm.sync'", "nextval('ci_scm.runs'), 'scm.sync'"),
        ("EXECUTE 'GRANT x ON scm.runs TO y'", "EXECUTE 'GRANT x ON ci_scm.runs TO y'"),
        ("-- it's scm.runs\nscm.runs", "-- it's scm.runs\nci_scm.runs"),
        ("AS $$ SELECT 'it''s scm.sync', scm.runs $$", "AS $$ SELECT 'it''s scm.sync', ci_scm.runs $$"),
        ("my_scm.runs, a.scm.x, \"scm.x\", IDENTITY", "my_scm.runs, a.scm.x, \"scm.x\", IDENTITY"),
    ],
)  # fmt: skip
def test_what_is_rewritten(sql: str, expected: str) -> None:
    """R001-062: names of schemas, not words of the data"""
    assert Prefix("ci", frozenset({"scm.runs"})).render(sql) == expected


def test_the_files_under_a_prefix_are_other_migrations() -> None:
    """R001-062: what does not speak of the five schemas is the same migration, the rest is not"""
    found = Prefixed(SHIPPED.root, prefix_for(SHIPPED, "ci")).migrations()
    changed = {
        m.name for m, plain in zip(found, SHIPPED.migrations(), strict=True) if m.sha256 != plain.sha256
    }
    assert changed >= {"identity", "logbook", "scm", "analysis_governance"}
    assert "supervisor" not in changed
    assert [m.number for m in found] == [m.number for m in SHIPPED.migrations()]
