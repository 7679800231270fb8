"""The file backend: addresses of shares, mounts, and what a network does to names."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.artifacts import ArtifactExists, ArtifactMissing, InvalidKey, Overwrite
from supervisor.artifacts.errors import BadAddress
from supervisor.artifacts.file import FileArtifacts, directory_of

KEY = "scm/1/svn/r100.diff"
MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
60 21 0:50 / /mnt/nfs rw,relatime shared:2 - nfs4 fileserver:/exports/artifacts rw,vers=4.2,sec=krb5p
61 21 0:51 / /mnt/smb rw,relatime - cifs //FileServer/artifacts rw,vers=3.1.1,seal
62 21 0:52 /inner /mnt/with\\040space rw - cifs //other/share rw
63 21 0:53 / /mnt/root rw - nfs4 whole:/ rw
"""


@pytest.fixture
def share(tmp_path: Path) -> Path:
    (tmp_path / "share").mkdir()
    return tmp_path / "share"


@pytest.fixture
def artifacts(share: Path) -> FileArtifacts:
    return FileArtifacts(f"file://{share}")


async def test_a_mount_point(share: Path) -> None:
    """R001-082, R001-108: file:///mnt/... and the key below it, whatever the final slash"""
    for address in (f"file://{share}", f"file://{share}/", f"file://localhost{share}"):
        store = FileArtifacts(address)
        await store.put(KEY, b"x", overwrite=Overwrite.SAME)
        assert await store.uri(KEY) == f"file://{share}/{KEY}"
        assert await store.key_of(f"file://{share}/{KEY}") == KEY
    assert (share / KEY).read_bytes() == b"x"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("file://fileserver/artifacts/proj_a", "/mnt/smb/proj_a"),
        ("file://fileserver/Artifacts/", "/mnt/smb"),
        ("file://fileserver/exports/artifacts/proj_a", "/mnt/nfs/proj_a"),
        ("file://other/share/inner/proj_a", "/mnt/with space/proj_a"),
        ("file://whole/any/where", "/mnt/root/any/where"),
        ("file:///mnt/nfs/artifacts", "/mnt/nfs/artifacts"),
        ("file:///mnt/with%20space/a", "/mnt/with space/a"),
    ],
)
def test_a_share_by_its_name_in_the_network(address: str, expected: str) -> None:
    """R001-082: file://server/share/... is found where this host mounts it"""
    assert directory_of(address, MOUNTS) == Path(expected)


@pytest.mark.parametrize(
    "address",
    ["file://fileserver/nothing/here", "file://nobody/artifacts", "file://other/share/outside"],
)
def test_a_share_that_is_not_mounted_is_refused(address: str) -> None:
    with pytest.raises(BadAddress, match="not mounted"):
        FileArtifacts(address, mounts=MOUNTS)


@pytest.mark.parametrize(
    "address",
    [
        "", "/mnt/nfs", "http://server/share", "s3://bucket/x", "file://", "file:///", "file:///mnt/../etc",
        "file:///mnt/%2e%2e/etc", "file:///mnt//x", "file:///mnt/./x", "file:///mnt/x?y", "file:///mnt/x#y",
        "file://user:secret@server/share", "file://server:445/share", "file:///mnt/a%00b",
    ],
)  # fmt: skip
def test_an_address_that_could_mean_something_else_is_refused(address: str) -> None:
    """R001-082, R001-086: and nothing of a credential in it is told"""
    with pytest.raises(BadAddress, match="BAD_ADDRESS") as caught:
        FileArtifacts(address)
    assert "secret" not in str(caught.value)


async def test_addresses_of_a_named_share(share: Path) -> None:
    """R001-082: the same on hosts that mount it in different places"""
    mounts = f"61 21 0:51 / {share} rw - cifs //fileserver/artifacts rw"
    store = FileArtifacts("file://fileserver/artifacts/", mounts=mounts)
    stored = await store.put("é/a b", b"x")
    assert stored.uri == "file://fileserver/artifacts/%C3%A9/a%20b"
    assert await store.key_of(stored.uri) == "é/a b"
    assert (share / "é/a b").read_bytes() == b"x"


async def test_a_mount_point_that_is_gone_is_not_made(tmp_path: Path) -> None:
    """What would be written there is hidden by the mount when it comes back."""
    store = FileArtifacts(f"file://{tmp_path}/gone")
    with pytest.raises(ArtifactMissing, match="gone"):
        await store.put(KEY, b"x")
    assert not (tmp_path / "gone").exists()


async def test_no_temporary_file_remains(artifacts: FileArtifacts, share: Path) -> None:
    """R001-083: <name>.tmp.<uuid>, then the name; after it, one file"""
    seen: list[str] = []
    real = os.link

    def link(source: str, *arguments: Any, **options: Any) -> None:
        seen.append(source)
        real(source, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "link", link)
        await artifacts.put(KEY, b"x")
    assert seen[0].startswith("r100.diff.tmp.")
    assert [path.relative_to(share) for path in share.rglob("*") if path.is_file()] == [Path(KEY)]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS])
async def test_a_share_without_links(
    artifacts: FileArtifacts, share: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """R001-083: names are given by a rename that refuses a taken one"""

    def link(*arguments: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    await artifacts.put(KEY, b"first")
    with pytest.raises(ArtifactExists):
        await artifacts.put(KEY, b"second")
    await artifacts.put(KEY, b"first", overwrite=Overwrite.SAME)
    assert await artifacts.get(KEY) == b"first"
    assert [path.name for path in share.rglob("*") if path.is_file()] == ["r100.diff"]


async def test_an_answer_that_was_lost_is_no_refusal(
    artifacts: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS repeats a request whose answer was lost, and says EEXIST or ENOENT of what it did itself."""
    link, rename = os.link, os.rename

    def link_twice(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        link(*arguments, **options)

    def rename_twice(*arguments: Any, **options: Any) -> None:
        rename(*arguments, **options)
        rename(*arguments, **options)

    monkeypatch.setattr(os, "link", link_twice)
    monkeypatch.setattr(os, "rename", rename_twice)
    await artifacts.put(KEY, b"one")
    assert await artifacts.get(KEY) == b"one"
    await artifacts.put(KEY, b"two", overwrite=Overwrite.REPLACE)
    assert await artifacts.get(KEY) == b"two"


async def test_a_share_that_cannot_flush_a_directory(
    artifacts: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(number: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{number}"):  # noqa: PTH112
            raise OSError(errno.EINVAL, "Invalid argument")
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    await artifacts.put(KEY, b"x")
    assert await artifacts.delete(KEY)


async def test_links_of_a_share_are_not_followed(artifacts: FileArtifacts, share: Path) -> None:
    """R001-076"""
    (share.parent / "outside").mkdir()
    (share / "scm").symlink_to(share.parent / "outside")
    with pytest.raises(InvalidKey):
        await artifacts.put(KEY, b"x")
    assert list((share.parent / "outside").iterdir()) == []
