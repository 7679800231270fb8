"""Evidence from its URI to its content, and what is told when the content is no longer what it was."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.scm.evidence import NoEvidence, resolve, verify
from actors.scm.uri import BadUri, build_attachment_evidence_uri, build_evidence_uri, key_of_physical
from supervisor.artifacts import ArtifactMissing, Artifacts, ChecksumMismatch
from supervisor.artifacts.local import LocalArtifacts
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.integration.scm.ledger import Ledger, revision
from tests.support.command_line import Cli, command_line

DIFF = b"Index: a\n+\xff\x1b[31mred\n"


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return LocalArtifacts(tmp_path / "artifacts")


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=4)
    yield store
    await store.close()


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("TENURE_ARTIFACTS_DIR", str(tmp_path / "artifacts"))
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def uri(ledger: Ledger, artifacts: Artifacts) -> str:
    """Of a stored diff of revision 1, written down as a sync does."""
    repo = await ledger.repo("code")
    key = f"scm/{repo}/svn/r1.diff"
    stored = await artifacts.put(key, DIFF)
    patch = {"uri": key, "sha256": stored.sha256, "size_bytes": stored.size}
    held = await ledger.begun("code")
    await ledger.begin(held)
    await ledger.record(held, 1, [revision(1, patch=patch)], 1)
    await ledger.finish(held)
    return build_evidence_uri("svn", f"{repo}:1", stored.sha256)


async def attach(ledger: Ledger, key: str, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    item = await ledger.control.fetchval("SELECT logbook.add_item('note', 'a note', 'open', 'proj', '{}')")
    row = await ledger.control.fetchrow(
        "SELECT * FROM logbook.attach($1, 'log', $2, $3, $4, '{}')", item, key, digest, len(content)
    )
    assert row is not None
    assert row["evidence_uri"] == build_attachment_evidence_uri(row["attachment_id"], digest)
    return str(row["evidence_uri"])


async def test_evidence_is_found_by_what_the_ledger_calls_it(
    ledger: Ledger, artifacts: Artifacts, store: Store, uri: str
) -> None:
    """R001-036, R001-043: the row's own URI leads to the content."""
    recorded = await ledger.admin.fetchval("SELECT meta_json ->> 'evidence_uri' FROM scm.patch_blobs")
    assert recorded == uri
    found = await resolve(uri, store, artifacts)
    assert found.content == DIFF
    assert found.sha256 == hashlib.sha256(DIFF).hexdigest()
    attached = await attach(ledger, "attachments/1/1.log", b"it happened")
    await artifacts.put("attachments/1/1.log", b"it happened")
    assert (await resolve(attached, store, artifacts)).content == b"it happened"


async def test_other_content_is_not_shown(artifacts: Artifacts, store: Store, uri: str, cli: Cli) -> None:
    """R001-043, R001-118: CHECKSUM_MISMATCH, and none of it on the way out."""
    path = next((Path.cwd() / "artifacts").rglob("r1.diff"))
    path.chmod(0o600)
    path.write_bytes(b"forged" + DIFF[6:])
    with pytest.raises(ChecksumMismatch):
        await resolve(uri, store, artifacts)
    answer = await cli("evidence", "show", uri, "--output", "r1.diff")
    assert answer.code == 1
    assert "CHECKSUM_MISMATCH" in answer.err
    assert "forged" not in answer.out + answer.err
    assert not Path("r1.diff").exists()


async def test_a_row_of_another_content_is_other_evidence(
    ledger: Ledger, artifacts: Artifacts, store: Store, uri: str
) -> None:
    """R001-043: whoever quotes a digest gets that content, and only while the ledger vouches for it."""
    other = uri.rpartition("/")[0] + "/" + "0" * 64
    with pytest.raises(ChecksumMismatch):
        await resolve(other, store, artifacts)
    await ledger.admin.execute("ALTER TABLE scm.patch_blobs DISABLE TRIGGER USER")
    await ledger.admin.execute(
        "UPDATE scm.patch_blobs SET sha256 = repeat('0', 64),"
        " meta_json = jsonb_set(meta_json, '{evidence_uri}', to_jsonb($1::text))",
        other,
    )
    with pytest.raises(ChecksumMismatch):
        await resolve(uri, store, artifacts)


async def test_what_is_not_there(artifacts: Artifacts, store: Store, uri: str, cli: Cli) -> None:
    digest = uri.rpartition("/")[2]
    for missing in (f"memory://patch_blobs/svn/999:1/{digest}", f"memory://attachments/999/{digest}"):
        with pytest.raises(NoEvidence):
            await resolve(missing, store, artifacts)
        assert (await cli("evidence", "show", missing)).code == 5
    await artifacts.delete(f"scm/{uri.split('/')[4].split(':', maxsplit=1)[0]}/svn/r1.diff")
    with pytest.raises(ArtifactMissing):
        await resolve(uri, store, artifacts)
    assert (await cli("evidence", "show", uri)).code == 5
    with pytest.raises(BadUri):
        await resolve("scm/1/svn/r1.diff", store, artifacts)
    for hostile in ("memory://patch_blobs/svn/1:1/x", "file:///etc/passwd", "\udcff", "a\0b", ""):
        assert (await cli("evidence", "show", hostile)).code == 2


async def test_evidence_on_the_command_line(uri: str, cli: Cli, tmp_path: Path) -> None:
    """R001-043"""
    facts = (await cli("evidence", "show", uri, "--json")).json()
    assert (facts["sha256"], facts["size_bytes"]) == (hashlib.sha256(DIFF).hexdigest(), len(DIFF))
    shown = await cli("evidence", "show", uri)
    assert shown.code == 0
    assert "Index: a\n+" in shown.out
    assert "\x1b" not in shown.out
    assert (await cli("evidence", "show", uri, "--output", "r1.diff")).code == 0
    assert (tmp_path / "r1.diff").read_bytes() == DIFF
    assert (await cli("evidence", "show", uri, "--output", "r1.diff")).code == 2, "nothing is written over"
    assert (await cli("evidence", "show", uri, "--output", "no/such/place")).code == 2


async def test_everything_on_record_is_verified(
    ledger: Ledger, artifacts: Artifacts, store: Store, uri: str, cli: Cli
) -> None:
    """R001-067, R001-081"""
    attached = await attach(ledger, "attachments/1/1.log", b"it happened")
    told = (await cli("evidence", "verify", "--repo", "code", "--json")).json()
    assert told == {"checked": 1, "checked_bytes": len(DIFF), "wrong": [], "missing": []}
    assert (await cli("evidence", "verify", "--repo", "nothing")).code == 5

    lost = await cli("evidence", "verify", "--json")
    assert lost.code == 1
    assert [one["uri"] for one in json.loads(lost.out)["missing"]] == [attached]

    path = next((Path.cwd() / "artifacts").rglob("r1.diff"))
    path.chmod(0o600)
    path.write_bytes(b"forged" + DIFF[6:])
    wrong = await verify(store, artifacts, "code")
    assert not wrong.sound
    assert [one for one, _ in wrong.wrong] == [uri]
    assert "CHECKSUM_MISMATCH" in wrong.wrong[0][1]
    answer = await cli("evidence", "verify", "--repo", "code")
    assert answer.code == 1
    assert uri in answer.out


async def test_a_record_of_another_size_is_told(
    ledger: Ledger, artifacts: Artifacts, store: Store, uri: str
) -> None:
    """R001-033: both the digest and the size are the content's."""
    await ledger.admin.execute("ALTER TABLE scm.patch_blobs DISABLE TRIGGER USER")
    await ledger.admin.execute("UPDATE scm.patch_blobs SET size_bytes = size_bytes + 1")
    assert [one for one, _ in (await verify(store, artifacts)).wrong] == [uri]


async def test_addresses_in_place_of_keys_are_told(ledger: Ledger, uri: str, cli: Cli) -> None:
    """R001-040, R001-109, R001-110, R001-111"""
    attached = await attach(ledger, "attachments/1/1.log", b"it happened")
    assert attached
    clean = await cli("evidence", "residues", "--json")
    assert clean.json() == []
    for table, constraint in (("scm.patch_blobs", "patch_key"), ("logbook.attachments", "attachment_key")):
        await ledger.admin.execute(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
        await ledger.admin.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    await ledger.admin.execute("UPDATE scm.patch_blobs SET uri = 's3://bucket/scm/1/svn/r1.diff'")
    found = await cli("evidence", "residues", "--json")
    assert found.code == 1
    assert [one["place"] for one in json.loads(found.out)] == ["scm.patch_blobs"]
    await ledger.admin.execute("UPDATE logbook.attachments SET uri = 'HTTP://host/x'")
    found = await cli("evidence", "residues")
    assert found.code == 1
    assert "logbook.attachments" in found.out


async def test_an_address_of_our_own_store_is_read_as_its_key(
    ledger: Ledger, artifacts: Artifacts, store: Store, uri: str
) -> None:
    """R001-039: what came from elsewhere with an address is still found, where it lies in our store."""
    key = (await resolve(uri, store, artifacts)).key
    assert key_of_physical(await artifacts.uri(key), [await artifacts.place() or ""]) == key
    await ledger.admin.execute("ALTER TABLE scm.patch_blobs DROP CONSTRAINT patch_key")
    await ledger.admin.execute("ALTER TABLE scm.patch_blobs DISABLE TRIGGER USER")
    await ledger.admin.execute("UPDATE scm.patch_blobs SET uri = $1", await artifacts.uri(key))
    assert (await resolve(uri, store, artifacts)).content == DIFF
    assert (await verify(store, artifacts)).sound
    await ledger.admin.execute("UPDATE scm.patch_blobs SET uri = 'https://elsewhere.example/r1.diff'")
    assert not (await verify(store, artifacts)).sound
