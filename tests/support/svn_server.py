"""svnserve on the loopback address, with repositories made from generated dumps.

A dump says exactly what a repository holds, revisions without an author or a date included, and loads many
times faster than commits are made.
"""

import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.slowness import Allowance, patient

PROGRAMS = ("svn", "svnadmin", "svnserve")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
needs_svn = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (Subversion)")


@dataclass(frozen=True)
class Node:
    """One change of a revision: a folder where `content` is None, nothing but the path for a deletion."""

    path: str
    action: str = "add"
    content: bytes | None = None
    copyfrom: tuple[int, str] | None = None

    def dumped(self) -> bytes:
        head = [f"Node-path: {self.path}"]
        if self.action != "delete":
            kind = "dir" if self.content is None and not self.copyfrom else "file"
            head.append(f"Node-kind: {kind}")
        head.append(f"Node-action: {self.action}")
        if self.copyfrom:
            head += [f"Node-copyfrom-rev: {self.copyfrom[0]}", f"Node-copyfrom-path: {self.copyfrom[1]}"]
        if self.content is None:
            return "\n".join([*head, "", "", ""]).encode()
        size = len(self.content)
        head += [f"Text-content-length: {size}", f"Content-length: {size}"]
        return "\n".join([*head, "", ""]).encode() + self.content + b"\n\n"


@dataclass(frozen=True)
class Revision:
    nodes: Sequence[Node] = ()
    author: str | None = "somebody"
    date: str | None = "2024-01-15T10:00:00.000000Z"
    message: bytes | None = b"a change"
    extra: dict[str, bytes] = field(default_factory=dict)

    def dumped(self, number: int) -> bytes:
        facts = {
            "svn:author": self.author and self.author.encode(),
            "svn:date": self.date and self.date.encode(),
            "svn:log": self.message,
        }
        text = b""
        for name, value in {**facts, **self.extra}.items():
            if value is not None:
                text += b"K %d\n%s\nV %d\n%s\n" % (len(name), name.encode(), len(value), value)
        text += b"PROPS-END\n"
        head = f"Revision-number: {number}\nProp-content-length: {len(text)}\nContent-length: {len(text)}\n\n"
        return head.encode() + text + b"\n" + b"".join(node.dumped() for node in self.nodes)


def load(repository: Path, revisions: Iterable[Revision]) -> None:
    """Make a repository of these revisions, from 1 on."""
    creating = ["svnadmin", "create", str(repository)]
    subprocess.run(creating, check=True)
    (repository / "conf/svnserve.conf").write_text("[general]\nanon-access = read\n")
    head = f"SVN-fs-dump-format-version: 2\n\nUUID: {uuid.uuid4()}\n\n".encode()
    dump = head + b"".join(one.dumped(number) for number, one in enumerate(revisions, start=1))
    options = ["--quiet", "--force-uuid", "--no-flush-to-disk", "--bypass-prop-validation"]
    loading = ["svnadmin", "load", *options, str(repository)]
    subprocess.run(loading, input=dump, check=True, capture_output=True)


def many(count: int) -> Iterator[Revision]:
    """A repository with a life: `count` revisions over some two hundred files."""
    yield Revision(
        [Node("trunk"), Node("trunk/src"), Node("trunk/f0", content=b"line 0\n")], message=b"begin"
    )
    text: dict[int, bytes] = {0: b"line 0\n"}
    for number in range(1, count):
        file = (number * 7) % 200
        added = b"line %d of file %d\n" % (number, file)
        action = "change" if file in text else "add"
        text[file] = (text.get(file, b"") + added)[-4000:]
        nodes = [Node(f"trunk/f{file}", action, text[file])]
        author = f"dev{number % 12}" if number % 50 else None
        minute, second = divmod(number, 60)
        date = (
            f"2024-01-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{second:02d}.000000Z"
        )
        yield Revision(nodes, author, date, b"change %d\n\nwith <tags> & more" % number)


@dataclass(frozen=True)
class SvnServer:
    root: Path
    port: int

    def url(self, path: str) -> str:
        return f"svn://127.0.0.1:{self.port}/{path}"


@contextmanager
def svn_server(root: Path) -> Iterator[SvnServer]:
    port = free_port()
    place = ["--listen-host", "127.0.0.1", "--listen-port", str(port)]
    serving = ["svnserve", "-d", "--foreground", "-r", str(root), *place]
    server = subprocess.Popen(serving)
    try:
        _until_it_answers(server, port)
        yield SvnServer(root, port)
    finally:
        server.terminate()
        server.wait(patient(10))


def _until_it_answers(server: "subprocess.Popen[bytes]", port: int) -> None:
    allowance, last = Allowance(20), ""
    while not allowance.used_up() and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError as error:
            last = repr(error)
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"svnserve does not answer within {allowance}; exit {server.poll()}, at last: {last}")
