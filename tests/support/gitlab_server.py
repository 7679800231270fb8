"""A server on the loopback address that answers like GitLab's REST API v4, out of a real git repository.

It is not GitLab, and nothing here ran against GitLab. Imitated, from GitLab's documentation:

- `GET /api/v4/projects/:id/repository/commits` (ref_name: branch, commit or `a..b`; since and until, both
  inclusive and as `git log` means them; with_stats; newest first), `.../commits/:sha`, `.../:sha/diff`;
- `GET .../merge_requests` (order_by, sort, updated_after and updated_before, inclusive; times in
  milliseconds), `.../merge_requests/:iid/notes`, `/approvals` and `/reviewers`;
- pages by `page` and `per_page` (20, at most 100) with Link headers and no totals; a full page of commits
  always has a next one, even an empty one; PRIVATE-TOKEN, and 401 without it; 404 for what there is not.

A merge request is a branch: what git knows of it (its tip, whether it is merged, by which commit, when) is
asked of git, the rest stands in a JSON file beside the repository: {"merge_requests": [...], "notes":
{"<iid>": [...]}, "approvals": {...}, "reviewers": {...}}, which a test may change at any time.

Faults are scripted: the next requests whose path contains `on` are answered by the fault instead.
"""

import gzip
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.git_server import git
from tests.support.slowness import patient

TOKEN = "glpat-synthetic-5ecret-0123456789"
PROJECT = 7
PREFIX = f"/api/v4/projects/{PROJECT}"
ENTRY = "%x1e%H%x1f%P%x1f%an%x1f%ae%x1f%aI%x1f%cn%x1f%ce%x1f%cI%x1f%B%x1f"

Query = dict[str, str]


@dataclass
class Fault:
    """Answers the next `times` requests to a path that contains `on`."""

    answer: Callable[["Handler"], None]
    on: str = ""
    times: int = 1
    skip: int = 0


@dataclass(frozen=True)
class Asked:
    path: str
    query: Query
    headers: dict[str, str]
    at: float


@dataclass
class GitlabServer:
    repository: Path
    side_file: Path
    port: int = 0
    token: str | None = TOKEN
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    before: Callable[[str, Query], None] | None = None
    """Called with each request before it is answered: where data changes in between."""
    max_page: int = 100
    zipped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def side(self) -> dict[str, Any]:
        whole: dict[str, Any] = {"merge_requests": [], "notes": {}, "approvals": {}, "reviewers": {}}
        if self.side_file.exists():
            whole |= json.loads(self.side_file.read_text())
        return whole

    def save(self, side: dict[str, Any]) -> None:
        draft = self.side_file.with_suffix(".new")
        draft.write_text(json.dumps(side))
        draft.replace(self.side_file)

    def fail(self, answer: Callable[["Handler"], None], on: str = "", times: int = 1, skip: int = 0) -> None:
        self.faults.append(Fault(answer, on, times, skip))

    def paths(self, part: str = "") -> list[Asked]:
        return [one for one in self.asked if part in one.path]

    def take_fault(self, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.on in path and fault.times > 0:
                    if fault.skip > 0:
                        fault.skip -= 1
                        return None
                    fault.times -= 1
                    return fault
        return None

    def git(self, *arguments: str) -> str:
        try:
            return git(self.repository, *arguments).decode(errors="replace")
        except subprocess.CalledProcessError as error:
            raise LookupError(error.stderr) from None

    # What is asked for.

    def answer(self, path: str, query: Query) -> tuple[Any, bool]:
        """The value, and whether there is a next page."""
        parts = path.removeprefix(PREFIX).strip("/").split("/")
        match parts:
            case ["repository", "commits"]:
                return self.commits(query)
            case ["repository", "commits", sha]:
                return self.log("--max-count=1", "--end-of-options", sha)[0], False
            case ["repository", "commits", sha, "diff"]:
                return self.page(self.diff(sha), query)
            case ["merge_requests"]:
                return self.page(self.listed(query), query)
            case ["merge_requests", iid, "notes"]:
                notes = sorted(self.of(iid, "notes", []), key=lambda one: str(one["created_at"]))
                return self.page(notes if query.get("sort") == "asc" else notes[::-1], query)
            case ["merge_requests", iid, "approvals"]:
                return {"iid": int(iid), "approved_by": self.of(iid, "approvals", [])}, False
            case ["merge_requests", iid, "reviewers"]:
                return self.of(iid, "reviewers", []), False
        raise LookupError(path)

    def of(self, iid: str, what: str, nothing: Any) -> Any:
        side = self.side
        if not any(str(one["iid"]) == iid for one in side["merge_requests"]):
            raise LookupError(iid)
        return side[what].get(iid, nothing)

    def size(self, query: Query) -> tuple[int, int]:
        size = min(int(query.get("per_page", "20")), self.max_page)
        return int(query.get("page", "1")), size

    def page(self, whole: list[Any], query: Query) -> tuple[list[Any], bool]:
        page, size = self.size(query)
        return whole[(page - 1) * size : page * size], page * size < len(whole)

    def commits(self, query: Query) -> tuple[list[Any], bool]:
        page, size = self.size(query)
        options = [f"--skip={(page - 1) * size}", f"--max-count={size}"]
        options += [f"--after={query['since']}"] if "since" in query else []
        options += [f"--before={query['until']}"] if "until" in query else []
        ref = query.get("ref_name") or self.git("symbolic-ref", "HEAD").strip()
        if ref == query.get("ref_name") or self.git("for-each-ref", ref):
            found = self.log(*options, "--end-of-options", ref, stats=query.get("with_stats") == "true")
        else:
            found = []  # the default branch of an empty project
        return found, len(found) == size

    def log(self, *arguments: str, stats: bool = False) -> list[dict[str, Any]]:
        numbers = ["--numstat", "--no-renames", "--diff-merges=first-parent"] if stats else []
        text = self.git("log", f"--format={ENTRY}", *numbers, *arguments, "--")
        return [self.told(entry, stats=stats) for entry in text.split("\x1e")[1:]]

    def told(self, entry: str, *, stats: bool) -> dict[str, Any]:
        sha, parents, an, ae, at, cn, ce, ct, message, rest = entry.split("\x1f")
        whole: dict[str, Any] = {
            "id": sha,
            "short_id": sha[:8],
            "created_at": ct,
            "parent_ids": parents.split(),
            "title": message.partition("\n")[0],
            "message": message,
            "author_name": an,
            "author_email": ae,
            "authored_date": at,
            "committer_name": cn,
            "committer_email": ce,
            "committed_date": ct,
            "trailers": {},
            "web_url": f"https://gitlab.example.org/group/project/-/commit/{sha}",
        }
        if stats:
            lines = [line.split("\t")[:2] for line in rest.splitlines() if line]
            added, removed = (sum(int(one[n]) for one in lines if one[n] != "-") for n in (0, 1))
            whole["stats"] = {"additions": added, "deletions": removed, "total": added + removed}
        return whole

    def diff(self, sha: str) -> list[dict[str, Any]]:
        parents = self.git("rev-list", "--parents", "--max-count=1", "--end-of-options", sha).split()[1:]
        between = ["--find-renames", *(["--root"] if not parents else []), *parents[:1], sha]
        listing = ["diff-tree", "--no-commit-id", "-r"]
        raw = self.git(*listing, "--raw", "-z", *between).split("\0")
        patch = self.git(*listing, "--patch", *between)
        sections = [] if not patch else ("\n" + patch).split("\ndiff --git ")[1:]
        return [
            _file(head, next_paths, section)
            for (head, next_paths), section in zip(_raw(raw), sections, strict=True)
        ]

    def listed(self, query: Query) -> list[dict[str, Any]]:
        found = [self.merge_request(one) for one in self.side["merge_requests"]]
        if after := query.get("updated_after"):
            found = [one for one in found if one["updated_at"] >= _milliseconds(after)]
        if before := query.get("updated_before"):
            found = [one for one in found if one["updated_at"] <= _milliseconds(before)]
        found.sort(key=lambda one: (one[query.get("order_by", "created_at")], one["iid"]))
        return found if query.get("sort") == "asc" else found[::-1]

    def merge_request(self, side: dict[str, Any]) -> dict[str, Any]:
        facts: dict[str, Any] = {"state": side.get("state", "opened")}
        if branch := side.get("source_branch"):
            tip = self.git("rev-parse", "--verify", f"refs/heads/{branch}").strip()
            target = side.get("target_branch", "main")
            facts |= {"sha": tip, "target_branch": target}
            merges = self.git(
                "log", "--merges", "--first-parent", "--format=%H %cI %P", f"refs/heads/{target}"
            )
            for line in merges.splitlines():
                merge, when, *parents = line.split()
                if tip in parents[1:]:
                    facts |= {"state": "merged", "merge_commit_sha": merge, "merged_at": _milliseconds(when)}
            facts["created_at"] = _milliseconds(self.git("log", "-1", "--format=%aI", tip).strip())
            facts["updated_at"] = facts.get("merged_at") or facts["created_at"]
        url = f"https://gitlab.example.org/group/project/-/merge_requests/{side['iid']}"
        return {
            "id": 1000 + side["iid"],
            "project_id": PROJECT,
            "web_url": url,
            "labels": [],
            **facts,
            **side,
        }


def _raw(fields: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    rest = iter(fields)
    for head in rest:
        if not head:
            return
        words = head.lstrip(":").split()
        yield words, [next(rest) for _ in range(2 if words[4][0] in "RC" else 1)]


def _file(head: list[str], paths: list[str], section: str) -> dict[str, Any]:
    old_mode, new_mode, _, _, status = head
    lines = section.split("\n")
    begins = next((n for n, line in enumerate(lines) if line.startswith(("@@", "Binary files"))), len(lines))
    hunks = "\n".join(lines[begins:])
    return {
        "diff": hunks + ("\n" if hunks and not hunks.endswith("\n") else ""),
        "new_path": paths[-1],
        "old_path": paths[0],
        "a_mode": old_mode if status[0] != "A" else "0",
        "b_mode": new_mode if status[0] != "D" else "0",
        "new_file": status[0] == "A",
        "renamed_file": status[0] == "R",
        "deleted_file": status[0] == "D",
        "generated_file": None,
    }


def _milliseconds(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    here: GitlabServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name there
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.here.asked.append(Asked(parts.path, query, headers, time.monotonic()))
        if fault := self.here.take_fault(parts.path):
            fault.answer(self)
            return
        if self.here.token and headers.get("private-token") != self.here.token:
            self.say(401, {"message": "401 Unauthorized"})
            return
        if self.here.before:
            self.here.before(parts.path, query)
        try:
            if not parts.path.startswith(PREFIX + "/"):
                raise LookupError(parts.path)  # noqa: TRY301  one place for all that is not there
            value, more = self.here.answer(parts.path, query)
        except LookupError:
            self.say(404, {"message": "404 Not Found"})
            return
        self.say(200, value, self.links(parts.path, query, more=more))

    def links(self, path: str, query: Query, *, more: bool) -> dict[str, str]:
        page, size = self.here.size(query)
        links = []
        for name, number in (("prev", page - 1), ("next", page + 1), ("first", 1)):
            if (name == "prev" and page == 1) or (name == "next" and not more):
                continue
            asked = urlencode({**query, "page": str(number), "per_page": str(size)})
            links.append(f'<{self.here.url}{path}?{asked}>; rel="{name}"')
        return {
            "Link": ", ".join(links),
            "X-Per-Page": str(size),
            "X-Next-Page": str(page + 1) if more else "",
        }

    def say(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        whole = {"Content-Type": "application/json", **(headers or {})}
        if self.here.zipped and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, whole["Content-Encoding"] = gzip.compress(body), "gzip"
        self.send(status, {**whole, "Content-Length": str(len(body))}, body)

    def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        if "Date" not in headers:
            headers = {"Date": self.date_time_string(), **headers}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


# Faults


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.say(code, {"message": f"token was {TOKEN}"}, named)


def raw(body: bytes, **headers: str) -> Callable[[Handler], None]:
    """Status 200 with this body and these headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.say(200, body, named)


def truncated(body: bytes = b'[{"id": "', promised: int = 1000) -> Callable[[Handler], None]:
    """Ends in the middle of what it promised."""

    def answer(handler: Handler) -> None:
        handler.send(200, {"Content-Type": "application/json", "Content-Length": str(promised)}, body)
        handler.close_connection = True

    return answer


def slow(release: threading.Event) -> Callable[[Handler], None]:
    """Answers by and by, a little at a time, so that no wait for the next piece is long; for a minute."""

    def answer(handler: Handler) -> None:
        handler.send(200, {"Content-Type": "application/json", "Content-Length": "2000"}, b"[")
        for _ in range(1200):
            if release.wait(0.05):
                break
            handler.wfile.write(b" ")
        handler.close_connection = True

    return answer


def _serving(server: GitlabServer) -> ThreadingHTTPServer:
    handler = type("Bound", (Handler,), {"here": server})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    server.port = http.server_address[1]
    return http


@contextmanager
def gitlab_server(repository: Path, side_file: Path | None = None) -> Iterator[GitlabServer]:
    server = GitlabServer(repository, side_file or repository.parent / f"{repository.name}.json")
    http = _serving(server)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(patient(10))
