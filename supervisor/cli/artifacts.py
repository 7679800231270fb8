"""`tenure artifacts`: what is stored beside the database: collect, move, verify."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import structlog
import typer

from supervisor.artifacts import Artifacts
from supervisor.artifacts.collector import Collection, Rules, collect
from supervisor.artifacts.inspection import Inspection, inspect
from supervisor.artifacts.move import Move, Rewriting, move, rewrite
from supervisor.artifacts.references import key_of, list_references, protected_keys
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.cli import output, session
from supervisor.cli.artifacts_report import (
    Progress,
    counts,
    inspection_json,
    pairs,
    print_collection,
    print_inspection,
    print_move,
    print_rewriting,
    rewriting_json,
)
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import BadInput
from supervisor.store import Store

app = typer.Typer(
    no_args_is_help=True, help="Artifacts: files beside the database, in one of three backends."
)

Kind = Literal["local", "file", "object"]
Backend = Annotated[
    Kind | None, typer.Option(help="Which store.", show_default="TENURE_ARTIFACTS_BACKEND or local")
]
Prefix = Annotated[str, typer.Option(help="Only what is in this folder, such as scm/.", show_default="all")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell; so it is without --execute, too.")]


@app.command("gc")
def gc(
    *,
    prefix: Prefix = "",
    orphan_days: Annotated[
        float, typer.Option(min=0, max=36500, help="Only what nobody has put for so many days; at least 1.")
    ] = 90,
    trash_prefix: Annotated[
        str | None,
        typer.Option(help="Move there instead of deleting, such as .trash/.", show_default=False),
    ] = None,
    require_trash: Annotated[
        bool, typer.Option("--require-trash", help="Refuse to delete without --trash-prefix.")
    ] = False,
    force_hard_delete: Annotated[
        bool, typer.Option("--force-hard-delete", help="Without --trash-prefix: yes, delete for good.")
    ] = False,
    backend: Backend = None,
    execute: Annotated[
        bool, typer.Option("--execute", "--delete", "--delete-orphans", help="Remove what was found.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--list-orphans", help="Only tell; so it is without --execute, too.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Find artifacts that no row refers to, and remove them with --execute.

    What was put within --orphan-days stays: its row may not be committed yet.

    Example: `tenure artifacts gc --orphan-days 90 --trash-prefix .trash/ --require-trash --execute`
    """
    rules = Rules(
        prefix=encodable(prefix, "the prefix"),
        orphan_days=orphan_days,
        trash=None if trash_prefix is None else encodable(trash_prefix, "the trash prefix"),
        require_trash=require_trash,
        force_hard_delete=force_hard_delete,
        execute=_decided(execute=execute, dry_run=dry_run),
    )
    rules.check()

    async def work(store: Store) -> Collection:
        async with _opened(backend) as artifacts:
            return await collect(
                artifacts,
                lambda: protected_keys(artifacts, list_references(store)),
                rules,
                Progress(
                    lambda found: (
                        f"{found.scanned} seen, {len(found.orphans)} orphans, {found.removed} removed"
                    )
                ),
            )

    found = session.run(work)
    if as_json:
        output.print_json(
            {
                "dry_run": not rules.execute,
                **counts(found, "scanned", "scanned_bytes", "referenced", "young"),
                "orphans": len(found.orphans),
                **counts(found, "orphan_bytes", "removed", "removed_bytes", "spared"),
                "failed": pairs(found.failed, "key", "error"),
                "entries": [
                    {"key": entry.key, "size": entry.size, "modified_at": entry.modified_at}
                    for entry in found.orphans
                ],
            }
        )
    else:
        print_collection(found, rules)
    return 1 if found.failed else 0


@app.command("migrate")
def migrate(
    *,
    source: Annotated[
        Kind | None, typer.Option("--from", "--source-backend", help="The store to read.", show_default=False)
    ] = None,
    target: Annotated[
        Kind | None, typer.Option("--to", "--target-backend", help="The store to fill.", show_default=False)
    ] = None,
    source_root: Annotated[
        Path | None, typer.Option(help="Where the local source is.", show_default="the settings'")
    ] = None,
    source_uri: Annotated[
        str | None, typer.Option(help="Where the file:// source is.", show_default="the settings'")
    ] = None,
    target_root: Annotated[
        Path | None, typer.Option(help="Where the local target is.", show_default="the settings'")
    ] = None,
    target_uri: Annotated[
        str | None, typer.Option(help="Where the file:// target is.", show_default="the settings'")
    ] = None,
    prefix: Prefix = "",
    verify: Annotated[bool, typer.Option("--verify", help="Read both sides and compare.")] = False,
    update_db: Annotated[
        bool, typer.Option("--update-db", help="Turn addresses into keys where a table holds keys.")
    ] = False,
    dry_run: DryRun = False,
    execute: Execute = False,
    as_json: Json = False,
) -> int:
    """Copy artifacts to another store under the same keys; the source is not changed.

    Ended half-way, it goes on where it was. Without --from and --to only --verify and --update-db are done,
    on the store of the settings. Afterwards set TENURE_ARTIFACTS_BACKEND, and the variable that it names.

    Example: `tenure artifacts migrate --from local --to object --verify --execute`
    """
    doing = _decided(execute=execute, dry_run=dry_run)
    if (source is None) != (target is None):
        raise BadInput(what="--from and --to belong together")
    if source is None and not (verify or update_db):
        raise BadInput(what="nothing to do: give --from and --to, --verify or --update-db")
    folder = encodable(prefix, "the prefix")
    if source is None:
        return _migrate_here(folder, verify=verify, update_db=update_db, doing=doing, as_json=as_json)

    async def work(store: Store) -> tuple[Move, Rewriting | None, str | None]:
        async with (
            _opened(source, root=source_root, uri=source_uri) as old,
            _opened(target, root=target_root, uri=target_uri) as new,
        ):
            if await old.place() is not None and await old.place() == await new.place():
                raise BadInput(what=f"source and target are the same store: {old.where}")
            moved = await move(
                old, new, prefix=folder, verify=verify, execute=doing,
                recorded=await _recorded(store, old) if verify else None,
                tell=Progress(lambda told: f"{told.scanned} seen, {told.copied} copied"),
            )  # fmt: skip
            done = (
                await rewrite(store, list_references(store), (old, new), execute=doing) if update_db else None
            )
            return moved, done, await old.place()

    moved, rewritten, place = session.run(work)
    if as_json:
        fields = ("scanned", "scanned_bytes", "copied", "copied_bytes", "present", "verified")
        output.print_json(
            {
                "dry_run": not doing,
                **counts(moved, *fields),
                "failed": pairs(moved.failed, "key", "error"),
                "update_db": rewriting_json(rewritten),
                "former_place": place,
            }
        )
    else:
        print_move(moved, rewritten, place, doing=doing)
    return 1 if moved.failed else 0


@app.command("verify")
def verify_(
    prefix: Prefix = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only whether it is there, with the size on record.")
    ] = False,
    backend: Backend = None,
    as_json: Json = False,
) -> int:
    """Read every artifact, hash it and compare with what is on record; exit 1 when anything is not as it was.

    Told are: wrong content, artifacts that a row refers to and that are not there, and rows with an address
    where a key belongs.

    Example: `tenure artifacts verify --prefix scm/ --json`
    """
    folder = encodable(prefix, "the prefix")
    return _verify(folder, backend, quick=quick, as_json=as_json)


def _verify(folder: str, backend: Kind | None, *, quick: bool, as_json: bool) -> int:
    async def work(store: Store) -> Inspection:
        async with _opened(backend) as artifacts:
            tell = Progress(lambda told: f"{told.checked} checked, {len(told.wrong)} wrong")
            return await inspect(artifacts, list_references(store), prefix=folder, quick=quick, tell=tell)

    told = session.run(work)
    if as_json:
        output.print_json(inspection_json(told))
    else:
        print_inspection(told)
    return 0 if told.sound else 1


def _migrate_here(folder: str, *, verify: bool, update_db: bool, doing: bool, as_json: bool) -> int:
    async def work(store: Store) -> tuple[Rewriting | None, Inspection | None]:
        async with _opened(None) as here:
            done = await rewrite(store, list_references(store), (here,), execute=doing) if update_db else None
            told = await inspect(here, list_references(store), prefix=folder) if verify else None
            return done, told

    rewritten, told = session.run(work)
    if as_json:
        facts = {"dry_run": not doing, "update_db": rewriting_json(rewritten)}
        output.print_json(facts | ({"verify": inspection_json(told)} if told else {}))
    else:
        print_rewriting(rewritten, doing=doing)
        if told:
            print_inspection(told)
    return 0 if told is None or told.sound else 1


@asynccontextmanager
async def _opened(
    backend: Kind | None, *, root: Path | None = None, uri: str | None = None
) -> AsyncIterator[Artifacts]:
    from supervisor.artifacts.backends import open_artifacts  # noqa: PLC0415  every backend's client

    # standard output is the answer; what is logged of a failed reading goes beside it
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    given = {name: value for name, value in (("root", root), ("uri", uri)) if value is not None}
    artifacts = open_artifacts(load_artifact_settings(**given), load_settings().state_dir, backend)
    try:
        yield artifacts
    finally:
        await artifacts.aclose()


async def _recorded(store: Store, artifacts: Artifacts) -> Mapping[str, str]:
    """What the database says that digests begin with."""
    return {
        key: reference.sha256
        async for reference in list_references(store)
        if reference.sha256 is not None and (key := await key_of(artifacts, reference.ref)) is not None
    }


def _decided(*, execute: bool, dry_run: bool) -> bool:
    if execute and dry_run:
        raise BadInput(what="--execute and --dry-run exclude each other")
    return execute
