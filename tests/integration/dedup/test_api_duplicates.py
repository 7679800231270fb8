"""Groups of equal content over HTTP: which files count, in what order, and pages that do not repeat."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from schemas import queries
from supervisor.embedded import Urls
from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import DIGEST, Scene, is_problem
from tests.support.command_line import command_line
from tests.support.sessions import connected

module_scene, scene = api_scene.module_scene, api_scene.library_scene

GROUPS = "/duplicates/groups"
KEY = f"blake3:{DIGEST.hex()}"
MANY = """INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, needs_hash,
                 hash_algorithm, content_hash, hashed_size, hashed_mtime_ns)
          SELECT l.id, format('d%s/%s.jpg', n % 100, n), 1000 + n % $1, 1, false, 'blake3',
                 sha256(convert_to((n % $1)::text, 'UTF8')), 1000 + n % $1, 1
            FROM dedup.library_roots l, generate_series(1, $2::integer) AS n WHERE l.name = 'photos'"""


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def place(group: dict[str, Any]) -> tuple[int, int, str]:
    return -group["file_count"], -group["total_size_bytes"], group["group_key"]


async def test_a_group_is_told_with_its_figures(scene: Scene) -> None:
    """R000-65, R000-71: the key is the algorithm and the hash; the waste is what all but one take."""
    ids = await scene.files("photos", ["c", "b", "a"], size=7)
    answer = await scene.get(GROUPS)
    assert answer.status_code == 200
    group = {
        "group_key": KEY,
        "file_count": 3,
        "total_size_bytes": 21,
        "duplicate_waste_bytes": 14,
        "sample_file_id": min(ids),
    }
    assert answer.json() == {"items": [group], "next_cursor": None}


@pytest.mark.parametrize(
    "change",
    [
        "is_missing = true",
        "needs_hash = true",
        "hash_algorithm = NULL, content_hash = NULL, needs_hash = true",
    ],
)
async def test_only_files_that_are_there_and_hashed_count(scene: Scene, change: str) -> None:
    """R000-66, R000-68, R000-76: a missing or changed file is in no group, and alone there is no group."""
    ids = await scene.files("photos", ["a", "b", "c"])
    await scene.admin.execute(f"UPDATE dedup.library_files SET {change} WHERE id = $1", ids[1])
    assert [group["file_count"] for group in await scene.pages(GROUPS)] == [2]
    assert [file["id"] for file in await scene.pages(f"{GROUPS}/{KEY}/files")] == [ids[0], ids[2]]
    await scene.admin.execute(f"UPDATE dedup.library_files SET {change} WHERE id = $1", ids[0])
    assert await scene.pages(GROUPS) == []


async def test_one_digest_under_two_algorithms_is_two_groups(scene: Scene) -> None:
    """R000-67."""
    await scene.files("photos", ["a", "b"])
    await scene.files("photos", ["c", "d"], algorithm="sha256")
    keys = [group["group_key"] for group in await scene.pages(GROUPS, limit=1)]
    assert keys == [KEY, f"sha256:{DIGEST.hex()}"]


async def test_groups_come_by_count_size_algorithm_and_hash(scene: Scene) -> None:
    """R000-69: in this order, with each of them deciding somewhere; also where a page ends."""
    number = 0
    for algorithm in ("sha256", "blake3"):
        for size in (5, 1, 9):
            for count in (2, 4, 3):
                for sign in (-1, 1):
                    number += 1
                    content = digest(900 + sign * number)
                    paths = [f"{number}-{copy}" for copy in range(count)]
                    await scene.files("photos", paths, digest=content, size=size, algorithm=algorithm)
    listed = await scene.pages(GROUPS, limit=1000)
    assert len(listed) == number
    assert listed == sorted(listed, key=place)
    for limit in (1, 5):
        assert await scene.pages(GROUPS, limit=limit) == listed


@pytest.mark.parametrize("size", [0, 11])
async def test_equal_groups_come_once_each(scene: Scene, size: int) -> None:
    """R000-73: where count and size are equal the hash decides; also of empty files, which have no size."""
    for number in range(23):
        await scene.files("photos", [f"{number}-a", f"{number}-b"], digest=digest(number * 7919), size=size)
    keys = [group["group_key"] for group in await scene.pages(GROUPS, limit=4)]
    assert len(keys) == len(set(keys)) == 23
    assert keys == sorted(keys)


async def test_a_cursor_says_what_the_last_group_was(scene: Scene) -> None:
    """R000-70: base64url of JSON with exactly the four fields the order is made of."""
    for number in range(3):
        await scene.files("photos", [f"{number}-a", f"{number}-b"], digest=digest(number))
    page = (await scene.get(GROUPS, limit=2)).json()
    assert json.loads(base64.urlsafe_b64decode(page["next_cursor"])) == {
        "file_count": 2,
        "total_size_bytes": 20,
        "hash_algorithm": "blake3",
        "content_hash_hex": digest(1).hex(),
    }


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "0",
        "not base64!",
        "e30",
        "bnVsbA",
        "\0",
        "é",
        base64.urlsafe_b64encode(b'{"file_count": 2}').decode(),
        base64.urlsafe_b64encode(
            b'{"file_count": NaN, "total_size_bytes": 1, "hash_algorithm": "blake3", "content_hash_hex": "'
            + b"00" * 32
            + b'"}'
        ).decode(),
        "A" * 9000,
    ],
)
async def test_what_is_no_cursor_is_refused(scene: Scene, cursor: str) -> None:
    """R000-74: 422, and neither an error of the server nor the first page."""
    await scene.files("photos", ["a", "b"])
    is_problem(await scene.get(GROUPS, cursor=cursor), 422, "INVALID_CURSOR")


async def test_a_cursor_at_the_ends_of_what_can_be_is_read(scene: Scene) -> None:
    """R000-74: forged with the largest numbers there are, it is still a place in the order."""
    await scene.files("photos", ["a", "b"])
    fields = {"hash_algorithm": "sha256", "content_hash_hex": "ff" * 32}
    for count, size, found in ((2**63 - 1, (2**63 - 1) ** 2, 1), (2, 0, 0)):
        text = json.dumps({"file_count": count, "total_size_bytes": size, **fields})
        cursor = base64.urlsafe_b64encode(text.encode()).decode()
        answer = await scene.get(GROUPS, cursor=cursor)
        assert (answer.status_code, len(answer.json().get("items", ()))) == (200, found)


async def test_sizes_beyond_a_bigint_add_up(scene: Scene) -> None:
    """R000-69: sparse files can be that large; their sum is told, paged behind and is no error."""
    for number in range(2):
        await scene.files("photos", [f"{number}a", f"{number}b"], digest=digest(number), size=2**63 - 1)
    listed = await scene.pages(GROUPS, limit=1)
    assert [group["total_size_bytes"] for group in listed] == [2 * (2**63 - 1)] * 2


async def fill_two_libraries(scene: Scene) -> None:
    """Groups within each, across both, and both at once; of one digest under two algorithms too."""
    await scene.library("music")
    await scene.files("photos", ["a", "b"], digest=digest(1))
    await scene.files("photos", ["c"], digest=digest(2))
    await scene.files("music", ["c", "d"], digest=digest(2))
    await scene.files("music", ["e", "f"], digest=digest(3), size=2**62)
    await scene.files("music", ["g", "h", "i"], digest=digest(4))
    await scene.files("photos", ["g", "h"], digest=digest(4))
    await scene.files("photos", ["i"], digest=digest(4), algorithm="sha256")


async def test_groups_of_a_library_are_those_within_it(scene: Scene) -> None:
    """R000-65: two or more of its own files, and the figures are of these; also from page to page."""
    await fill_two_libraries(scene)
    shown = {}
    for name in ("photos", "music"):
        listed = await scene.pages(GROUPS, library=name, limit=1)
        shown[name] = [
            (int(group["group_key"][-1]), group["file_count"], group["total_size_bytes"]) for group in listed
        ]
    assert shown == {"photos": [(1, 2, 20), (4, 2, 20)], "music": [(4, 3, 30), (3, 2, 2**63), (2, 2, 20)]}
    is_problem(await scene.get(GROUPS, library="nowhere"), 404, "NOT_FOUND")
    is_problem(await scene.get(GROUPS, library="no such\0"), 422, "INVALID_INPUT")


@pytest.mark.parametrize("library", [None, "photos", "music"])
async def test_the_command_line_tells_the_same_groups(
    scene: Scene, emptied_database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str | None
) -> None:
    """R000-65, R000-71: of a library and of all, with the same figures in the same order."""
    await fill_two_libraries(scene)
    cli = command_line(emptied_database, monkeypatch, tmp_path)
    only = () if library is None else ("--library", library)
    told = (await cli("duplicates", *only, "--json")).json()["groups"]
    figures = ("group_key", "file_count", "total_size_bytes", "duplicate_waste_bytes")
    listed = await scene.pages(GROUPS, library=library, limit=2)
    assert [{name: group[name] for name in figures} for group in told] == [
        {name: group[name] for name in figures} for group in listed
    ]
    assert [min(group["file_ids"]) for group in told] == [group["sample_file_id"] for group in listed]
    assert all(len(group["files"]) == group["file_count"] for group in told)


@pytest.mark.parametrize("limit", [0, 1001, -1, "x", "", 2**70])
async def test_a_page_has_bounds(scene: Scene, limit: Any) -> None:
    is_problem(await scene.get(GROUPS, limit=limit), 422, "INVALID_INPUT")
    is_problem(await scene.get(f"{GROUPS}/{KEY}/files", limit=limit), 422, "INVALID_INPUT")


async def test_the_files_of_a_group_come_by_id(scene: Scene) -> None:
    """R000-75, R000-77: each once; the cursor is the last id in decimal digits."""
    ids = await scene.files("photos", [f"{number:03}" for number in range(25)])
    page = (await scene.get(f"{GROUPS}/{KEY}/files", limit=4)).json()
    assert page["next_cursor"] == str(ids[3])
    first = page["items"][0]
    assert {name: first[name] for name in ("id", "library", "relative_path", "size_bytes", "mtime_ns")} == {
        "id": ids[0],
        "library": "photos",
        "relative_path": "000",
        "size_bytes": 10,
        "mtime_ns": 1,
    }
    assert [file["id"] for file in await scene.pages(f"{GROUPS}/{KEY}/files", limit=4)] == sorted(ids)


async def test_behind_the_last_file_there_is_an_empty_page(scene: Scene) -> None:
    """R000-77."""
    ids = await scene.files("photos", ["a", "b"])
    answer = await scene.get(f"{GROUPS}/{KEY}/files", cursor=ids[-1])
    assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})


@pytest.mark.parametrize(
    "cursor", ["", "0", "-1", "x", "1.0", "1e3", "٣", " 1", "\0", str(2**63), "9" * 4000]
)
async def test_what_is_no_cursor_of_files_is_refused(scene: Scene, cursor: str) -> None:
    """R000-77."""
    await scene.files("photos", ["a", "b"])
    is_problem(await scene.get(f"{GROUPS}/{KEY}/files", cursor=cursor), 422, "INVALID_CURSOR")


@pytest.mark.parametrize(
    "key",
    [
        "blake3",
        "blake3:",
        f"{KEY}0",
        KEY[:-1],
        KEY.replace("blake3", "md5"),
        KEY.replace("blake3", "BLAKE3"),
        f"{KEY[:-1]}g",
        f"{KEY[:-1]}%00",
        "%C3%A9",
    ],
)
async def test_a_malformed_group_key_is_refused(scene: Scene, key: str) -> None:
    """R000-72."""
    is_problem(await scene.get(f"{GROUPS}/{key}/files"), 422, "INVALID_GROUP_KEY")


async def test_an_unknown_group_is_not_found(scene: Scene) -> None:
    """R000-75."""
    for query in ({}, {"cursor": "7"}):
        is_problem(await scene.get(f"{GROUPS}/{KEY}/files", **query), 404, "NOT_FOUND")


async def test_groups_are_listed_from_their_index(database: Urls) -> None:
    """R000-65, R000-79: the listing reads `ix_library_files_dedup_group`, and of the table nothing."""
    async with connected(database.admin, plan_cache_mode="force_generic_plan") as admin:
        await admin.execute("SELECT dedup.add_library('test', 'photos', 'photos')")
        await admin.execute(MANY, 4000, 12000)
        await admin.execute("VACUUM ANALYZE dedup.library_files")
        for query, args in (
            ("list_duplicate_groups", "NULL, NULL, NULL, NULL, 101"),
            ("list_group_files", f"'blake3', '\\x{DIGEST.hex()}', 0, 101"),
        ):
            await admin.execute(f"PREPARE {query} AS {queries()[query].sql}")
            plan = await admin.fetch(f"EXPLAIN EXECUTE {query}({args})")
            text = "\n".join(line[0] for line in plan)
            assert "ix_library_files_dedup_group" in text, text
            assert "Seq Scan on library_files" not in text, text
