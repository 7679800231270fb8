"""Git repositories made by fast-import, and git-http-backend behind a small HTTP server on loopback.

The server can ask for a name and a password, answer with an error of its own or a redirect instead, and notes
every request, so that a test sees what was sent.
"""

import base64
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ENV = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "HOME": "/nonexistent",
    "GIT_AUTHOR_NAME": "A U Thor",
    "GIT_AUTHOR_EMAIL": "author@example.com",
    "GIT_COMMITTER_NAME": "C O Mitter",
    "GIT_COMMITTER_EMAIL": "committer@example.com",
}


def git(repository: Path, *arguments: str, feed: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    """Run git in it; what it answered."""
    command = ["git", f"--git-dir={repository}", *arguments]
    surroundings = ENV | dict(env or {})
    return subprocess.run(command, input=feed, env=surroundings, check=True, capture_output=True).stdout


def bare(repository: Path) -> Path:
    git(repository, "init", "--quiet", "--bare", "--initial-branch=main", str(repository))
    return repository


@dataclass
class Story:
    """Commits for fast-import. `marks` count from 1."""

    lines: list[bytes] = field(default_factory=list)
    marks: int = 0

    def commit(
        self,
        branch: str,
        date: int,
        message: bytes = b"a change",
        files: Mapping[bytes, bytes | None] | None = None,
        *,
        parents: Iterable[int] | None = None,
        author: bytes = b"A U Thor <author@example.com>",
        encoding: bytes | None = None,
        extra: bytes = b"",
    ) -> int:
        """Add a commit; a file that is None is removed. Without `parents` it follows its branch."""
        self.marks += 1
        out = [b"commit refs/heads/%s\nmark :%d\n" % (branch.encode(), self.marks)]
        out.append(
            b"author %s %d +0100\ncommitter C O Mitter <committer@example.com> %d +0000\n"
            % (author, date, date)
        )
        if encoding:
            out.append(b"encoding %s\n" % encoding)
        out.append(b"data %d\n%s\n" % (len(message), message))
        for number, parent in enumerate(parents or ()):
            out.append(b"%s :%d\n" % (b"merge" if number else b"from", parent))
        for path, content in (files or {}).items():
            if content is None:
                out.append(b"D %s\n" % _quoted(path))
            else:
                out.append(b"M 100644 inline %s\ndata %d\n%s\n" % (_quoted(path), len(content), content))
        out.append(extra + b"\n")
        self.lines.append(b"".join(out))
        return self.marks

    def tell(self, repository: Path) -> None:
        git(
            repository,
            "fast-import",
            "--quiet",
            "--force",
            "--date-format=raw-permissive",
            feed=b"".join(self.lines),
        )
        self.lines.clear()


def _quoted(path: bytes) -> bytes:
    return b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'


def many(count: int) -> Story:
    """A history with a life: `count` commits over some thousand files, every hundredth a merge."""
    story = Story()
    text: dict[int, list[bytes]] = {}
    side = 0
    for number in range(count):
        files: dict[bytes, bytes | None] = {}
        for step in range(1 + number % 3):
            file = (number * 31 + step * 17) % 1000
            lines = text.setdefault(file, [])
            lines.append(b"line %d of file %d, some words to fill it" % (number, file))
            del lines[:-120]
            files[b"src/d%02d/f%d.c" % (file % 40, file)] = b"\n".join(lines) + b"\n"
        date = 1_500_000_000 + number * 60
        author = b"Dev %d <dev%d@example.com>" % (number % 20, number % 20)
        message = b"change %d\n\nwith a body of some words\nand two lines\n" % number
        if number % 100 == 50:
            side = story.commit(
                "side", date, message, {b"side/%d" % number: b"aside\n"}, parents=[story.marks]
            )
        elif number % 100 == 52:
            story.commit("main", date, message, files, parents=[story.marks, side], author=author)
        else:
            story.commit("main", date, message, files, author=author)
    return story


@dataclass
class GitServer:
    root: Path
    port: int = 0
    password: str | None = None
    redirect: str | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and Authorization of each request."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"


@contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    state = GitServer(root)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, state)

        def do_POST(self) -> None:
            _answer(self, state)

        def log_message(self, *_: object) -> None:
            """Not to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            http.shutdown()
            thread.join()


def _answer(request: BaseHTTPRequestHandler, state: GitServer) -> None:
    given = request.headers.get("Authorization", "")
    state.requests.append((request.path, given))
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    if state.redirect:
        request.send_response(302)
        request.send_header("Location", state.redirect + request.path)
    elif state.status:
        request.send_response(state.status)
        for name, value in state.headers.items():
            request.send_header(name, value)
    elif state.password is not None and not _opens(given, state.password):
        request.send_response(401)
        request.send_header("WWW-Authenticate", 'Basic realm="git"')
    else:
        _backend(request, state.root, body)
        return
    request.send_header("Content-Length", "0")
    request.end_headers()


def _opens(given: str, password: str) -> bool:
    kind, _, pair = given.partition(" ")
    return kind == "Basic" and base64.b64decode(pair).decode().partition(":")[2] == password


def _backend(request: BaseHTTPRequestHandler, root: Path, body: bytes) -> None:
    path, _, query = request.path.partition("?")
    env = ENV | {
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    backend = ("git", "http-backend")
    answer = subprocess.run(backend, input=body, env=env, stdout=subprocess.PIPE, check=False).stdout
    head, _, content = answer.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
    request.send_response(int(fields.pop("Status", "200 OK").split()[0]))
    for name, value in fields.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
