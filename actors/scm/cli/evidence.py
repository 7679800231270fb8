"""`tenure evidence`: what stands behind the ledger, read and verified."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from actors.scm.cli.inputs import check_repo
from actors.scm.cli.repo import found_repo
from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import BadInput
from supervisor.store import Store

if TYPE_CHECKING:
    from actors.scm.evidence import Resolved, Verification
    from supervisor.artifacts import Artifacts

SHOWN = 50

app = typer.Typer(no_args_is_help=True, help="Evidence: diffs and attachments, read back and verified.")


@app.command()
def show(
    uri: Annotated[
        str,
        typer.Argument(
            metavar="URI",
            help="memory://patch_blobs/... or memory://attachments/...",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path | None, typer.Option("--output", help="Write it to this new file.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Read the content of evidence; none of it is shown unless its SHA-256 is the one in the URI.

    With --json: where it is kept and how large it is, not the content itself.

    Example: `tenure evidence show memory://patch_blobs/svn/1:100/<sha256> --output r100.diff`

    Exits 1 with CHECKSUM_MISMATCH when the content is another, 5 when there is none.
    """
    encodable(uri, "the URI")
    if to is not None and to.exists():
        raise BadInput(what=f"{to} is there already; nothing is written over")

    async def work(store: Store) -> "Resolved":
        from actors.scm.evidence import resolve  # noqa: PLC0415  for this command alone

        async with _opened() as artifacts:
            return await resolve(uri, store, artifacts)

    found = session.run(work)
    if to is not None:
        _write(to, found.content)
    if as_json:
        facts = {"uri": found.uri, "key": found.key, "sha256": found.sha256, "size_bytes": len(found.content)}
        output.print_json(facts | ({} if to is None else {"output": str(to)}))
    elif to is None:
        _print(found.content)
    else:
        output.say(f"{len(found.content):,} bytes, verified, in {to}")
    return 0


@app.command()
def verify(
    repo: Annotated[
        str | None, typer.Option(help="Only the diffs of this repository.", show_default="everything")
    ] = None,
    as_json: Json = False,
) -> int:
    """Read every stored diff and attachment, hash it and compare with the ledger.

    Exits 1 when anything is missing or is not what was recorded.

    Example: `tenure evidence verify --repo code --json`
    """

    async def work(store: Store) -> "Verification":
        from actors.scm.evidence import verify as verify_all  # noqa: PLC0415  for this command alone
        from supervisor.cli.artifacts_report import Progress  # noqa: PLC0415

        if repo is not None:
            await found_repo(store, check_repo(repo))
        async with _opened() as artifacts:
            tell = Progress(lambda told: f"{told.checked} checked, {len(told.wrong)} wrong")
            return await verify_all(store, artifacts, repo, tell)

    told = session.run(work)
    if as_json:
        output.print_json(
            {
                "checked": told.checked,
                "checked_bytes": told.checked_bytes,
                "wrong": [{"uri": uri, "error": error} for uri, error in told.wrong],
                "missing": [{"uri": uri, "error": error} for uri, error in told.missing],
            }
        )
    else:
        for what, uri, error in [
            *(("wrong", *pair) for pair in told.wrong[:SHOWN]),
            *(("missing", *pair) for pair in told.missing[:SHOWN]),
        ]:
            output.say(f"{what}: {uri}: {error}")
        output.say(
            f"{told.checked:,} checked ({told.checked_bytes:,} bytes): "
            f"{len(told.wrong):,} wrong, {len(told.missing):,} missing"
        )
    return 0 if told.sound else 1


@app.command()
def residues(as_json: Json = False) -> int:
    """Find rows that hold an address where a key belongs; exit 1 when there are any.

    `tenure artifacts migrate --update-db --execute` turns those of our own stores into keys.

    Example: `tenure evidence residues`
    """
    rows = session.run(lambda store: store.rows("read_residues"))
    if as_json:
        output.print_json([dict(row) for row in rows])
    else:
        output.print_table(
            ["TABLE", "ROW", "ADDRESS"],
            ([row["place"], row["id"], row["uri"]] for row in rows),
            empty="no residues: every address is a key",
        )
    return 1 if rows else 0


@asynccontextmanager
async def _opened() -> "AsyncIterator[Artifacts]":
    import structlog  # noqa: PLC0415

    from supervisor.artifacts.backends import open_artifacts  # noqa: PLC0415  every backend's client
    from supervisor.artifacts.settings import load_artifact_settings  # noqa: PLC0415

    # standard output is the answer; what is logged of a failed reading goes beside it
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    artifacts = open_artifacts(load_artifact_settings(), load_settings().state_dir)
    try:
        yield artifacts
    finally:
        await artifacts.aclose()


def _write(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise BadInput(what=f"{path}: {error.strerror}") from None


def _print(content: bytes) -> None:
    """Its bytes for a pipe; for a terminal, without anything that could steer it."""
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None or sys.stdout.isatty():
        sys.stdout.write(output.clean(content.decode(errors="replace"), keep="\n\t"))
        return
    sys.stdout.flush()
    raw.write(content)
    raw.flush()
