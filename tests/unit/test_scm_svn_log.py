"""`svn log --xml -v` as svn writes it, and as nobody should."""

from datetime import UTC, datetime

import pytest

from actors.scm import svn_log
from actors.scm.records import SvnRevision
from actors.scm.svn_log import BadLog, SvnLogParser

LOG = b"""<?xml version="1.0" encoding="UTF-8"?>
<log>
<logentry revision="7">
<author>j\xc3\xb6rg</author>
<date>2024-01-15T10:00:00.123456Z</date>
<paths>
<path action="A" kind="file" text-mods="true" copyfrom-path="/trunk/a" copyfrom-rev="5">/trunk/b</path>
<path action="D" kind="">/trunk/&lt;c&gt; &amp; d</path>
</paths>
<msg>one &lt;two&gt;
three</msg>
</logentry>
<logentry revision="8">
<msg></msg>
</logentry>
</log>
"""


def parse(log: bytes, step: int = 65536, threshold: int = 100) -> list[SvnRevision]:
    parser = SvnLogParser(threshold)
    found = [record for at in range(0, len(log), step) for record in parser.feed(log[at : at + step])]
    return found + parser.close()


@pytest.mark.parametrize("step", [1, 10, 65536])
def test_revisions_with_everything_and_with_nothing(step: int) -> None:
    """R001-019, R001-020, R001-023 and C-31: author, date, message and paths may be absent, a kind empty."""
    full, empty = parse(LOG, step)
    assert (full.rev, full.author, full.message) == (7, "jörg", "one <two>\nthree")
    assert full.ts == datetime(2024, 1, 15, 10, 0, 0, 123456, tzinfo=UTC)
    copied = {
        "path": "/trunk/b",
        "action": "A",
        "kind": "file",
        "copyfrom_path": "/trunk/a",
        "copyfrom_rev": 5,
    }
    removed = {"path": "/trunk/<c> & d", "action": "D", "kind": ""}
    assert [path.as_json() for path in full.changed_paths] == [copied, removed]
    assert (empty.rev, empty.author, empty.ts, empty.message) == (8, "(no author)", None, "")
    assert (empty.changed_paths, empty.paths, empty.bulk.is_bulk) == ((), 0, False)


def entry(paths: int = 0, message: bytes = b"") -> bytes:
    lines = b"".join(b'<path action="M" kind="file">/f%d</path>' % number for number in range(paths))
    head = b'<?xml version="1.0"?><log><logentry revision="1"><paths>' + lines + b"</paths><msg>" + message
    return head + b"</msg></logentry></log>"


def test_a_hundred_and_one_paths_are_bulk_and_all_are_listed() -> None:
    """R001-021, R001-022, R001-023, R001-159."""
    assert not parse(entry(100))[0].bulk.is_bulk
    (record,) = parse(entry(150))
    assert record.bulk.reason == "large_changeset:150"
    assert len(record.changed_paths) == record.paths == 150
    assert parse(entry(60), threshold=50)[0].bulk.is_bulk


BOMB = b"""<?xml version="1.0"?><!DOCTYPE log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>
<log><logentry revision="1"><msg>&b;</msg></logentry></log>"""
OUTSIDE = b"""<?xml version="1.0"?><!DOCTYPE log SYSTEM "file:///etc/passwd"><log/>"""


@pytest.mark.parametrize("log", [BOMB, OUTSIDE])
def test_a_document_type_ends_the_reading(log: bytes) -> None:
    with pytest.raises(BadLog, match="document type"):
        parse(log)


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"<log>",
        b"Redirecting to URL 'http://x'",
        LOG[:300],
        b"<log><logentry revision='-1'></logentry></log>",
        b"<log><logentry></logentry></log>",
        b"<log><logentry revision='99999999999999999999'></logentry></log>",
        b"<log><logentry revision='1'><logentry revision='2'></logentry></logentry></log>",
        b"<log>&unknown;</log>",
    ],
)
def test_what_is_no_log_is_refused(log: bytes) -> None:
    with pytest.raises(BadLog):
        parse(log)


def test_characters_that_no_xml_has_are_replaced() -> None:
    (record,) = parse(entry(message=b"a\x01b\x00c\xff\xef\xbf\xbed"), step=3)
    assert record.message == "a\ufffdb\ufffdc\ufffd\ufffdd"


def test_what_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svn_log, "MAX_MESSAGE", 100)
    monkeypatch.setattr(svn_log, "MAX_PATHS", 10)
    (record,) = parse(entry(12, b"x" * 5000), step=64)
    assert (len(record.message), len(record.changed_paths), record.paths, record.cut) == (100, 10, 12, True)
    (short,) = parse(entry(10, b"x" * 100))
    assert not short.cut


def test_a_message_without_end_is_not_kept() -> None:
    parser = SvnLogParser(100)
    parser.feed(b'<log><logentry revision="1"><msg>')
    for _ in range(40):
        parser.feed(b"x" * 65536)
    held = sum(map(len, parser._pieces or ()))
    assert held <= svn_log.MAX_MESSAGE + 65536


@pytest.mark.parametrize("date", ["", "yesterday", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_date_that_is_none_is_none(date: str) -> None:
    log = f'<log><logentry revision="1"><date>{date}</date></logentry></log>'.encode()
    assert parse(log)[0].ts is None
