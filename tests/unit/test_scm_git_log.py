"""`git log -z --raw --numstat` with everything that names and messages may hold."""

from datetime import UTC, datetime

import pytest

from actors.scm import git_log
from actors.scm.git_log import BadGitLog, GitLogParser
from actors.scm.records import GitCommit

SHA, PARENT, OTHER = b"1" * 40, b"2" * 40, b"3" * 40
ZERO = b"0" * 40


def fields(
    sha: bytes = SHA,
    parents: bytes = PARENT,
    *,
    name: bytes = b"A",
    encoding: bytes = b"",
    message: bytes = b"m\n",
    authored: bytes = b"1",
    committed: bytes = b"1500000000",
) -> bytes:
    values = [sha, parents, name, b"a@b", authored, b"C", b"c@d", committed, encoding, message, b""]
    return b"".join(value + b"\0" for value in values)


def changes(*files: tuple[bytes, bytes, bytes]) -> bytes:
    raw = b"".join(b":100644 100644 %s %s M\0%s\0" % (SHA, SHA, path) for path, _, _ in files)
    counts = b"".join(b"%s\t%s\t%s\0" % (added, deleted, path) for path, added, deleted in files)
    return (b"\n" if files else b"") + raw + counts


def parse(log: bytes, step: int = 65536, *, stats: bool = True) -> list[GitCommit]:
    parser = GitLogParser(stats=stats)
    found = [record for at in range(0, len(log), step) for record in parser.feed(log[at : at + step])]
    return found + parser.close()


@pytest.mark.parametrize("step", [1, 17, 65536])
def test_commits_with_and_without_changes(step: int) -> None:
    """R001-024 to R001-028 and R001-031."""
    merge = fields(SHA, PARENT + b" " + OTHER) + changes((b"a", b"3", b"1"), (b"bin", b"-", b"-"))
    root = fields(OTHER, b"", authored=b"1400000000") + changes()
    first, second = parse(merge + root, step)
    assert (first.sha, first.is_merge, first.author_raw) == (SHA.decode(), True, "A <a@b>")
    assert first.parents == (PARENT.decode(), OTHER.decode())
    assert first.ts == datetime.fromtimestamp(1_500_000_000, UTC)
    assert first.stats == {"additions": 3, "deletions": 1, "total": 4}
    assert [(file.path, file.action, file.binary) for file in first.files] == [
        ("a", "M", False),
        ("bin", "M", True),
    ]
    assert (second.sha, second.parents, second.is_merge, second.files) == (OTHER.decode(), (), False, ())
    assert second.message == "m\n"
    assert second.authored_at == datetime.fromtimestamp(1_400_000_000, UTC)
    assert second.stats == {"additions": 0, "deletions": 0, "total": 0}


ODD = [b"new\nline", b"tab\there", b"\xff\xfe", b"-rf", b":100644 100644", b"1\t2\tx", SHA, b"\n:x"]


def test_odd_names_are_names() -> None:
    log = fields() + changes(*((name, b"1", b"0") for name in ODD)) + fields(OTHER)
    first, second = parse(log, 5)
    assert [file.path for file in first.files] == [name.decode("utf-8", "replace") for name in ODD]
    assert first.additions == len(ODD)
    assert second.sha == OTHER.decode()


def test_a_message_is_taken_for_nothing_else() -> None:
    message = b"\n:100644 100644 x\n1\t2\tx\n" + SHA + b"\n"
    (only,) = parse(fields(message=message))
    assert (only.message, only.file_count) == (message.decode(), 0)


@pytest.mark.parametrize(
    ("encoding", "raw", "text"),
    [
        (b"", "jörg".encode(), "jörg"),
        (b"", b"j\xf6rg", "j\ufffdrg"),
        (b"ISO-8859-1", b"j\xf6rg", "jörg"),
        (b"windows-1252", b"\x80", "€"),
        (b"SHIFT_JIS", "日本".encode("shift_jis"), "日本"),
        (b"ISO-8859-1", "jörg".encode(), "jörg"),
        (b"unicode_escape", b"\\x41\xff", "\\x41\ufffd"),
        (b"zlib_codec", b"x\xff", "x\ufffd"),
        (b"windows-9999", b"x", "x"),
        (b"\xff", b"x", "x"),
        (b"utf-16le", b"a\xd8", "\ufffd"),
    ],
)
def test_a_text_is_decoded_as_its_commit_says(encoding: bytes, raw: bytes, text: str) -> None:
    (only,) = parse(fields(name=raw, message=raw, encoding=encoding))
    assert only.message == text
    assert only.author_name == text


def test_a_committed_date_that_is_none_gives_way_to_the_authored_one() -> None:
    """R001-026."""
    (only,) = parse(fields(committed=b"99999999999999999", authored=b"1400000000"))
    assert only.ts == datetime.fromtimestamp(1_400_000_000, UTC)
    (neither,) = parse(fields(committed=b"", authored=b"99999999999999999"))
    assert neither.ts is None


def test_more_than_a_thousand_lines_are_bulk() -> None:
    """R001-029."""
    bulk, not_bulk = parse(
        fields() + changes((b"a", b"900", b"600")) + fields(OTHER) + changes((b"a", b"1000", b"0"))
    )
    assert (bulk.bulk.is_bulk, bulk.bulk.reason) == (True, "large_changeset:1500")
    assert (not_bulk.bulk.is_bulk, not_bulk.bulk.reason) == (False, None)


def test_without_stats_there_are_none() -> None:
    """R001-166."""
    (only,) = parse(fields(), stats=False)
    assert (only.additions, only.deletions, only.stats, only.bulk.is_bulk) == (None, None, None, False)


def test_what_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_log, "MAX_TOKEN", 100)
    monkeypatch.setattr(git_log, "MAX_FILES", 3)
    files = [(b"f%d" % number, b"2", b"1") for number in range(5)]
    long, other = parse(fields(message=b"x" * 5000) + changes(*files) + fields(OTHER), 64)
    assert (len(long.message), len(long.files), long.file_count, long.cut) == (100, 3, 5, True)
    assert (long.additions, long.deletions) == (10, 5)
    assert (other.sha, other.message, other.cut) == (OTHER.decode(), "m\n", False)


def test_a_message_without_end_is_not_kept() -> None:
    parser = GitLogParser(stats=True)
    parser.feed(fields()[:-4])
    for _ in range(40):
        parser.feed(b"x" * 65536)
    assert len(parser._carry) <= git_log.MAX_TOKEN + 1


@pytest.mark.parametrize(
    "log", [b"fatal: x", fields()[:-5], fields() + b":100644 100644 a b M\0", fields(b"no name"), b"\0" * 11]
)
def test_what_is_no_log_is_refused(log: bytes) -> None:
    with pytest.raises(BadGitLog):
        parse(log)
