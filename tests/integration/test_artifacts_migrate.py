"""`tenure artifacts migrate` and `verify`: from every backend to every other, begun again, and checked."""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from schemas import Query
from supervisor.artifacts import Artifacts, Elsewhere, StoreFailed
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.folder import FolderArtifacts
from supervisor.artifacts.references import SOURCES, Source, list_references
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.embedded import Urls
from tests.support.artifacts import World, artifact_world, use_s3
from tests.support.place import run_sql, value

KEYS = {f"scm/1/svn/r{n}.diff": f"diff {n}".encode() * n for n in range(1, 8)} | {
    "attachments/1/é b.log": b"log"
}
PAIRS = [("local", "object"), ("file", "object"), ("local", "file"), ("object", "local")]

BLOBS = Source(
    "scm.patch_blobs.uri",
    Query(
        "list_blobs",
        "",
        "SELECT id, uri AS ref, sha256, size FROM public.blobs WHERE id > $1 ORDER BY id LIMIT $2",
    ),
    rewrite=Query(
        "rewrite_blobs",
        "",
        "WITH changed AS (UPDATE public.blobs b SET uri = u.new"
        " FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u (id, old, new)"
        " WHERE b.id = u.id AND b.uri = u.old RETURNING 1) SELECT count(*) FROM changed",
    ),
)


@pytest.fixture
async def world(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[World]:
    use_s3(monkeypatch)
    async with artifact_world(database, monkeypatch, tmp_path) as world:
        yield world


@pytest.fixture
async def blobs(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A table that is meant to hold keys, as scm.patch_blobs is."""
    await run_sql(
        world.urls.admin,
        "CREATE TABLE public.blobs (id bigint PRIMARY KEY, uri text, sha256 text, size bigint)",
        "GRANT SELECT, UPDATE ON public.blobs TO tenure_control",
    )
    listing = partial(list_references, sources=(*SOURCES, BLOBS))
    monkeypatch.setattr("supervisor.cli.artifacts.list_references", listing)
    return world


async def blob(
    world: World, number: int, uri: str, sha256: str | None = None, size: int | None = None
) -> None:
    digest = "NULL" if sha256 is None else f"'{sha256}'"
    await run_sql(
        world.urls.admin, f"INSERT INTO public.blobs VALUES ({number}, '{uri}', {digest}, {size or 'NULL'})"
    )


async def fill(world: World, backend: str) -> None:
    for key, content in KEYS.items():
        await world.put(backend, key, content)


async def contents(world: World, backend: str) -> dict[str, bytes]:
    return {key: await world.store(backend).get(key) for key in await world.keys(backend)}


def options(source: str, target: str, *more: str) -> Sequence[str]:
    return ("migrate", "--source-backend", source, "--target-backend", target, *more, "--json")


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_from_each_backend_to_another(world: World, source: str, target: str) -> None:
    """R001-038, R001-104, R001-105, R001-107: dry, for good, and once more"""
    await fill(world, source)
    await world.put(source, "tmp/parked", b"x")
    dry = (await world.cli(*options(source, target, "--dry-run"))).json()
    assert (dry["dry_run"], dry["copied"], dry["copied_bytes"]) == (True, 8, sum(map(len, KEYS.values())))
    assert await world.keys(target) == set()
    done = (await world.cli(*options(source, target, "--verify", "--execute"))).json()
    assert (done["copied"], done["present"], done["verified"], done["failed"]) == (8, 0, 8, [])
    assert await contents(world, target) == KEYS
    assert await contents(world, source) == KEYS | {"tmp/parked": b"x"}
    again = (await world.cli("migrate", "--from", source, "--to", target, "--execute", "--json")).json()
    assert (again["copied"], again["present"]) == (0, 8)


async def test_it_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run does what the first did not: here after a store that failed half-way"""
    await fill(world, "local")
    real, puts = FolderArtifacts.put, 0

    async def put(self: FolderArtifacts, key: str, *arguments: Any, **named: Any) -> Any:
        nonlocal puts
        puts += 1
        if puts > 3:
            raise StoreFailed(path=key, what="gone")
        return await real(self, key, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(FolderArtifacts, "put", put)
        first = await world.cli(*options("local", "file", "--execute"))
    assert first.code == 1
    told = json.loads(first.out)
    assert len(told["failed"]) == 5
    assert len(await world.keys("file")) == 3
    second = (await world.cli(*options("local", "file", "--execute"))).json()
    assert (second["present"], second["copied"], second["failed"]) == (3, 5, [])
    assert await contents(world, "file") == KEYS


async def test_other_content_is_never_overwritten(world: World) -> None:
    """R001-118: by its size at once, of the same size by --verify"""
    await fill(world, "local")
    await world.put("file", "scm/1/svn/r1.diff", b"another size")
    await world.put("file", "scm/1/svn/r2.diff", b"x" * len(KEYS["scm/1/svn/r2.diff"]))
    plain = await world.cli(*options("local", "file", "--execute"))
    assert [one["key"] for one in json.loads(plain.out)["failed"]] == ["scm/1/svn/r1.diff"]
    answer = await world.cli(*options("local", "file", "--verify", "--execute"))
    assert answer.code == 1
    failed = {one["key"]: one["error"] for one in json.loads(answer.out)["failed"]}
    assert set(failed) == {"scm/1/svn/r1.diff", "scm/1/svn/r2.diff"}
    assert "CHECKSUM_MISMATCH" in failed["scm/1/svn/r2.diff"]
    assert await world.store("file").get("scm/1/svn/r1.diff") == b"another size"


async def test_a_source_that_is_not_what_was_recorded_is_not_copied(blobs: World) -> None:
    """R001-107: the record decides"""
    stored = await blobs.store("local").put("scm/1/svn/r1.diff", b"diff")
    await blob(blobs, 1, "scm/1/svn/r1.diff", stored.sha256, 4)
    blobs.path("local", "scm/1/svn/r1.diff").write_bytes(b"DIFF")
    answer = await blobs.cli(*options("local", "file", "--verify", "--execute"))
    assert answer.code == 1
    assert "CHECKSUM_MISMATCH" in json.loads(answer.out)["failed"][0]["error"]
    assert await blobs.keys("file") == set()


async def test_addresses_become_keys(blobs: World) -> None:
    """R001-104..106, R001-109..111: counted by a dry run, changed by --execute, failed by the check"""
    uri = await blobs.put("local", "scm/1/svn/r1.diff", b"diff")
    moved = f"s3://artifacts/{blobs.base}/scm/1/svn/r2.diff"
    await blobs.put("local", "scm/1/svn/r2.diff", b"diff")
    await blobs.put("local", "scm/1/svn/r3.diff", b"diff")
    for number, ref in enumerate((uri, moved, "scm/1/svn/r3.diff", "https://gitlab.example.com/diff"), 1):
        await blob(blobs, number, ref)
    residues = await blobs.cli("verify", "--json")
    assert residues.code == 1
    assert len(json.loads(residues.out)["residues"]) == 3

    dry = (await blobs.cli(*options("local", "object", "--update-db", "--dry-run"))).json()
    assert (dry["update_db"]["found"], dry["update_db"]["changed"]) == (3, 2)
    assert await value(blobs.urls.admin, "SELECT count(*) FROM blobs WHERE uri ~ ':'") == 3

    done = (await blobs.cli(*options("local", "object", "--update-db", "--execute"))).json()
    assert done["update_db"]["changed"] == 2
    assert done["update_db"]["unknown"] == [
        {"source": "scm.patch_blobs.uri", "ref": "https://gitlab.example.com/diff"}
    ]
    kept = "SELECT string_agg(uri, ' ' ORDER BY id) FROM blobs WHERE id < 4"
    assert await value(blobs.urls.admin, kept) == " ".join(f"scm/1/svn/r{n}.diff" for n in (1, 2, 3))
    again = (await blobs.cli(*options("local", "object", "--update-db", "--execute"))).json()
    assert again["update_db"]["changed"] == 0


async def test_without_two_stores_only_the_rows_change(blobs: World) -> None:
    """R001-106, R001-107: --update-db and --verify alone, on the store of the settings"""
    stored = await blobs.store("local").put("a", b"content")
    await blob(blobs, 1, stored.uri, stored.sha256, 7)
    dry = (await blobs.cli("migrate", "--update-db", "--json")).json()
    assert (dry["dry_run"], dry["update_db"]["changed"]) == (True, 1)
    done = (await blobs.cli("migrate", "--update-db", "--verify", "--execute", "--json")).json()
    assert done["update_db"]["changed"] == 1
    assert done["verify"]["wrong"] == done["verify"]["residues"] == []
    assert await value(blobs.urls.admin, "SELECT uri FROM blobs") == "a"
    blobs.path("local", "a").write_bytes(b"CONTENT")
    assert (await blobs.cli("migrate", "--verify", "--json")).code == 1


@pytest.mark.parametrize(
    "given",
    [
        [], ["--from", "local"], ["--to", "object"], ["--from", "tape", "--to", "local"],
        ["--from", "local", "--to", "local"], ["--verify", "--execute", "--dry-run"],
        ["--from", "file", "--to", "local", "--source-uri", "/mnt/nfs"],
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(world: World, given: list[str]) -> None:
    await world.put("local", "a", b"x")
    answer = await world.cli("migrate", *given, "--json")
    assert answer.code == 2, answer


async def test_sources_and_targets_by_their_place(world: World, tmp_path: Path) -> None:
    """R001-104: --source-root, --source-uri and their counterparts, over the settings"""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one/a").write_bytes(b"x")
    first = ["--source-root", str(tmp_path / "one"), "--target-uri", f"file://{tmp_path}/two"]
    assert (await world.cli(*options("local", "file", *first, "--execute"))).json()["copied"] == 1
    second = ["--source-uri", f"file://{tmp_path}/two", "--target-root", str(tmp_path / "three")]
    assert (await world.cli(*options("file", "local", *second, "--execute"))).json()["copied"] == 1
    assert (tmp_path / "three/a").read_bytes() == b"x"


async def test_addresses_stay_valid_after_a_move(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-038: a row that may not change keeps its address, and the new store knows whose it was"""
    uri = await world.put("local", "logs/2026/01/1.jsonl.gz", b"log")
    told = (await world.cli(*options("local", "object", "--execute"))).json()
    with pytest.raises(Elsewhere):
        await world.store("object").key_of(uri)
    monkeypatch.setenv("TENURE_ARTIFACTS_FORMER_PLACES", told["former_place"])
    moved: Artifacts = open_artifacts(load_artifact_settings(), world.directory, "object")
    assert await moved.get(await moved.key_of(uri)) == b"log"
    await moved.aclose()
    await world.refer_by_run(uri)
    found = (await world.cli("gc", "--backend", "object", "--json")).json()
    assert (found["referenced"], found["orphans"]) == (1, 0)


@pytest.mark.parametrize("backend", ["local", "file", "object"])
async def test_one_key_on_every_backend(world: World, backend: str) -> None:
    """R001-108: the same key, where each backend has it"""
    uri = await world.put(backend, "scm/1/svn/r100.diff", b"x")
    if backend == "local":
        assert uri.startswith("local://")
        assert (world.directory / "local/scm/1/svn/r100.diff").exists()
    elif backend == "file":
        assert uri == f"file://{world.directory}/share/scm/1/svn/r100.diff"
    else:
        assert uri == f"s3://artifacts/{world.base}/scm/1/svn/r100.diff"


@pytest.mark.parametrize("backend", ["local", "file", "object"])
async def test_verify_finds_what_is_wrong_and_what_is_missing(blobs: World, backend: str) -> None:
    """R001-067, R001-081, R001-095: digests and sizes on record, existence, and exit 1"""
    for number in range(1, 5):
        stored = await blobs.store(backend).put(f"scm/1/r{number}", f"diff {number}".encode())
        await blob(blobs, number, stored.key, stored.sha256, stored.size)
    await blobs.put(backend, "exports/1", b"no record")
    sound = (await blobs.cli("verify", "--backend", backend, "--json")).json()
    assert (sound["checked"], sound["referenced"], sound["wrong"], sound["missing"]) == (5, 4, [], [])
    assert "all as it was recorded" in (await blobs.cli("verify", "--backend", backend)).out

    await blobs.put(backend, "scm/1/r1", b"DIFF 1")
    await blobs.put(backend, "scm/1/r2", b"longer than before")
    await blobs.store(backend).delete("scm/1/r3")
    answer = await blobs.cli("verify", "--backend", backend, "--json")
    assert answer.code == 1
    told = json.loads(answer.out)
    assert {one["key"] for one in told["wrong"]} == {"scm/1/r1", "scm/1/r2"}
    assert all("CHECKSUM_MISMATCH" in one["error"] for one in told["wrong"])
    assert told["missing"] == [{"key": "scm/1/r3", "referenced_by": "scm.patch_blobs.uri 3"}]
    quick = json.loads((await blobs.cli("verify", "--backend", backend, "--quick", "--json")).out)
    assert {one["key"] for one in quick["wrong"]} == {"scm/1/r2"}
    assert len(quick["missing"]) == 1
    assert (await blobs.cli("verify", "--backend", backend, "--prefix", "exports")).code == 0


async def test_the_name_of_a_log_is_a_record(world: World) -> None:
    """R001-081: a log that was moved out is named after its digest"""
    content = b"a log, packed"
    digest = hashlib.sha256(content).hexdigest()[:32]
    uri = await world.put("local", f"logs/2026/01/7-{digest}.jsonl.gz", content)
    await world.refer_by_run(uri)
    assert (await world.cli("verify", "--json")).json()["referenced"] == 1
    world.path("local", f"logs/2026/01/7-{digest}.jsonl.gz").write_bytes(b"another log!!")
    answer = await world.cli("verify", "--json")
    assert (answer.code, len(json.loads(answer.out)["wrong"])) == (1, 1)


async def test_a_store_that_does_not_answer_is_an_error_without_a_secret(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-117, S17"""
    monkeypatch.setenv("ENGRAM_S3_SECRET_KEY", "canary-secret")
    for command in (["verify"], ["gc"]):
        answer = await world.cli(*command, "--backend", "object", "--json")
        assert answer.code == 1
        assert "PERMISSION_DENIED" in answer.err
        assert "canary" not in answer.out + answer.err
