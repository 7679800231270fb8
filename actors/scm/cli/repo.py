"""`tenure repo`: repositories that are read into the ledger."""

import json
import sys
from typing import Annotated, Any, Final

import typer

from actors.scm.cli.inputs import (
    RepoName,
    RepoType,
    check_repo,
    check_variable,
    configured,
    judge_address,
    plain,
)
from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record, Store

READ_SECONDS: Final = 60.0
REMOVE_SECONDS: Final = 600.0
COUNTS: Final = {
    "svn_revisions": "revisions",
    "git_commits": "commits",
    "mrs": "merge requests",
    "patch_blobs": "diffs",
}

app = typer.Typer(no_args_is_help=True, help="Repositories: svn, git and GitLab, read into the ledger.")


@app.command()
def add(
    name: RepoName,
    *,
    kind: Annotated[RepoType, typer.Option("--type", help="What it is.", show_default=False)],
    url: Annotated[
        str,
        typer.Option(help="Where it is: https://, ssh://, svn://, svn+ssh://; of GitLab, the server."),
    ],
    project_id: Annotated[
        int | None,
        typer.Option(min=1, max=10**17, help="The project's number in GitLab.", show_default=False),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(
            metavar="VAR", help="The variable of the replicas that holds its token.", show_default=False
        ),
    ] = None,
    project_key: Annotated[
        str | None, typer.Option(help="The project it belongs to.", show_default="TENURE_PROJECT_KEY")
    ] = None,
    branch: Annotated[
        str | None, typer.Option(help="Only this branch or tag (git).", show_default="all of them")
    ] = None,
    as_json: Json = False,
) -> int:
    """Add a repository. Nothing is read yet: `tenure sync run NAME` does that.

    Examples:

    - `tenure repo add code --type svn --url svn://svn.example.org/code`
    - `tenure repo add app --type git --url https://git.example.org/app.git --token-env APP_TOKEN`
    - `tenure repo add web --type gitlab --url https://gitlab.example.org --project-id 42 --token-env
    GITLAB_TOKEN`

    Refused: an address with a password in it, of a private or local host, or over http; what is allowed
    beyond that is said by `[scm.sync]` in tenure.toml, here and on every replica.
    """
    check_repo(name)
    config = _config(kind, project_id, token_env)
    if branch is not None and kind == "svn":
        raise BadInput(what="svn has no --branch: put its path into --url")
    key = _project_key() if project_key is None else encodable(project_key, "the project key")
    ref = None if branch is None else _branch(branch)
    rules = configured()

    async def work(store: Store) -> tuple[Record, str | None]:
        _, warning = await judge_address(url, kind, rules)
        row = await store.row("add_repo", session.actor(), name, kind, url, key, ref, json.dumps(config))
        assert row is not None  # noqa: S101  it raises where there is none
        return row, warning

    row, warning = session.run(work)
    if warning is not None:
        sys.stderr.write(f"note: {output.clean(warning)}\n")
    if as_json:
        output.print_json(plain(row))
    else:
        output.say(f"added repository {name} at {row['url']}; next: tenure sync run {name} --wait")
    return 0


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the repositories.

    Example: `tenure repo list --json | jq -r '.[].name'`
    """
    rows = session.run(lambda store: store.rows("list_repos"))
    if as_json:
        output.print_json([plain(row) for row in rows])
        return 0
    output.print_table(
        ["REPOSITORY", "TYPE", "URL", "BRANCH", "PROJECT", "TOKEN FROM"],
        (
            [
                row["name"],
                _kind(plain(row)),
                row["url"],
                row["default_branch"],
                row["project_key"],
                plain(row)["config_json"].get("token_env"),
            ]
            for row in rows
        ),
        empty="no repositories yet: `tenure repo add --help`",
    )
    return 0


@app.command()
def show(name: RepoName, as_json: Json = False) -> int:
    """Show a repository and how much of it was read. Exits 5 when there is no such repository.

    Example: `tenure repo show engine`
    """
    check_repo(name)
    row = session.run(lambda store: found_repo(store, name))
    if as_json:
        output.print_json(plain(row))
        return 0
    config = plain(row)["config_json"]
    output.print_facts(
        [
            ("repository", row["name"]),
            ("type", _kind(plain(row))),
            ("url", row["url"]),
            ("branch", row["default_branch"]),
            ("project", row["project_key"]),
            ("token from", config.get("token_env")),
            *((label, f"{row[field]:,}" if row[field] else None) for field, label in COUNTS.items()),
            ("added", f"{row['created_at']:%Y-%m-%d %H:%M}"),
        ]
    )
    output.say(f"its syncs: tenure sync status {name}")
    return 0


@app.command()
def remove(name: RepoName, as_json: Json = False) -> int:
    """Forget a repository: what was read of it, its tasks, runs and schedules.

    The logbook stays, and so do the stored diffs until `tenure artifacts gc`. Exits 4 while a sync has not
    ended, 5 when there is no such repository.

    Example: `tenure repo remove engine`
    """
    check_repo(name)
    removed = session.run(
        lambda store: store.value("remove_repo", session.actor(), name, timeout=REMOVE_SECONDS)
    )
    if as_json:
        output.print_json({"repo_id": removed, "name": name, "removed": True})
    else:
        output.say(f"removed repository {name}; its diffs stay until `tenure artifacts gc`")
    return 0


async def found_repo(store: Store, name: str) -> Record:
    row = await store.row("read_repo", name, timeout=READ_SECONDS)
    if row is None:
        raise NotFound(kind="repo", name=name)
    return row


def _config(kind: RepoType, project_id: int | None, token_env: str | None) -> dict[str, Any]:
    if (kind == "gitlab") != (project_id is not None):
        raise BadInput(what="--project-id is needed for --type gitlab, and for no other")
    config: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
    return config | ({} if token_env is None else {"token_env": check_variable(token_env)})


def _branch(name: str) -> str:
    """What git itself would not take for a name is refused here, before a program sees it."""
    encodable(name, "the branch")
    odd = any(char.isspace() or not char.isprintable() or char in "~^:?*[\\" for char in name)
    if not name or len(name) > 250 or odd or name.startswith(("-", "/")) or ".." in name or "@{" in name:
        raise BadInput(what=f"{name!r} is no name of a branch")
    return name


def _project_key() -> str:
    from supervisor.artifacts.settings import load_artifact_settings  # noqa: PLC0415  for this command alone

    return load_artifact_settings().project_key or ""


def _kind(row: dict[str, Any]) -> str:
    return "gitlab" if "project_id" in row["config_json"] else str(row["repo_type"])
