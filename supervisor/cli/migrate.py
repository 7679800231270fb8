"""`tenure migrate`: bring the database to this version's schema."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated

import anyio
import typer

from schemas import migrate as schema
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.config import Settings, load_settings
from supervisor.embedded import Urls
from supervisor.errors import BadInput
from supervisor.project import (
    NoMapping,
    check_agreement,
    check_key,
    check_prefix,
    in_database,
    openmemory_environment,
)
from supervisor.project_settings import load_database_settings

ProjectKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="The project's database: KEY on the same server, created if it is not there.",
        show_default=False,
    ),
]
SchemaPrefix = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="For tests, with ENGRAM_TESTING=1 only: P_identity, P_logbook, P_scm, P_analysis, P_governance.",
        show_default=False,
    ),
]
PrintOpenMemory = Annotated[
    bool,
    typer.Option(
        "--print-openmemory-env", help="Change nothing; print what OpenMemory is to be started with."
    ),
]
WithPassword = Annotated[bool, typer.Option("--with-password", help="Print OM_PG_PASSWORD too.")]


def migrate(
    project_key: ProjectKey = None,
    schema_prefix: SchemaPrefix = None,
    print_openmemory_env: PrintOpenMemory = False,
    with_password: WithPassword = False,
    as_json: Json = False,
) -> int:
    """Create or upgrade the schema; safe to run at any time, from several places at once.

    Uses TENURE_MIGRATE_DATABASE_URL, a login that may create roles, or TENURE_DATABASE_URL. Logins for the
    replicas are made from TENURE_DATABASE_URL and TENURE_WORKER_DATABASE_URL. Without the rights it prints
    the SQL that an administrator has to run, and exits 1. Installed packages' migrations are applied too.

    In place of URLs, `[db]` of tenure.toml (or TENURE_DB_...) may have project_key, host, port, user,
    password, admin_user and admin_password. Where both are given, TENURE_DATABASE_URL wins.

    Example: `TENURE_MIGRATE_DATABASE_URL=postgresql://admin@db/app tenure migrate --project-key proj_a`
    """
    prefix = _checked(project_key, schema_prefix)
    admin, runtime = _urls(load_settings(project_key=project_key), project_key)
    if project_key is not None:
        admin = in_database(admin, project_key)
        runtime = {role: in_database(url, project_key) for role, url in runtime.items()}
    if print_openmemory_env:
        return _print_openmemory(runtime, with_password=with_password, as_json=as_json)
    if with_password:
        raise BadInput(what="--with-password belongs to --print-openmemory-env")
    return _migrate(admin, runtime, prefix, as_json=as_json)


def _checked(project_key: str | None, schema_prefix: str | None) -> str | None:
    """What is refused before any database is looked for; the prefix, if there is one."""
    parts = load_database_settings()
    if project_key is not None:
        check_key(project_key, testing=parts.testing)
    check_agreement(
        project_key or parts.project_key,
        parts.postgres_db,
        # who names a project has more than one
        single_project=parts.single_project and project_key is None,
    )
    return None if schema_prefix is None else check_prefix(schema_prefix, testing=parts.testing)


def _migrate(admin: str, runtime: Mapping[str, str], prefix: str | None, *, as_json: bool) -> int:
    from supervisor.wiring import lease_rights, task_types  # noqa: PLC0415  loads every domain; a URL is checked first

    rights, types = lease_rights(), task_types()
    tell = (lambda _line: None) if as_json else (lambda line: output.say("- ", line))
    work = partial(
        schema.migrate,
        admin,
        runtime_urls=runtime,
        report=tell,
        rights=rights,
        task_types=types,
        prefix=prefix,
    )
    try:
        report = anyio.run(work)
    except schema.NeedsAdministrator as needed:
        sql = needed.facts["sql"]
        if as_json:
            output.print_json({"database": needed.facts["database"], "administrator_sql": sql})
        else:
            sys.stdout.write(f"{sql}\n")
            sys.stdout.flush()
        output.print_error(
            f"{needed.facts['user']} may not do all of this: an administrator runs the SQL on standard"
            f" output, connected to {needed.facts['database']}",
            "run it as a superuser, then `tenure migrate` again",
            as_json=as_json,
        )
        return needed.exit_code
    if as_json:
        output.print_json({**asdict(report), "schema_prefix": prefix, "changed": report.changed})
    else:
        state = "is now" if report.changed else "was already"
        under = f" under the prefix {prefix}" if prefix else ""
        output.say(f"{report.database} {state} at schema {report.version}{under}")
    return 0


def _print_openmemory(runtime: Mapping[str, str], *, with_password: bool, as_json: bool) -> int:
    """Lines that a shell reads as they are; the password only where it is asked for."""
    if "control" not in runtime:
        raise NoMapping(what="TENURE_DATABASE_URL is not set")
    names = openmemory_environment(runtime["control"], with_password=with_password)
    if as_json:
        output.print_json(names)
    else:
        sys.stdout.writelines(f"{name}={shlex.quote(value)}\n" for name, value in names.items())
    return 0


def _embedded(settings: Settings, project_key: str | None) -> Urls:
    try:
        return session.embedded_urls(settings)
    except session.NoDatabase:
        if project_key is not None:
            # A project lives on a server: say what of its address is missing.
            load_database_settings().place(project_key)
        raise


def _urls(settings: Settings, project_key: str | None) -> tuple[str, Mapping[str, str]]:
    """Who migrates, and the logins that must work afterwards."""
    if settings.database_url is None and settings.migrate_database_url is None:
        urls = _embedded(settings, project_key)
        return urls.admin, urls.runtime()
    runtime = {}
    if settings.database_url is not None:
        control = session.control_url(settings)
        # Without a URL of its own the worker half of a replica uses the control URL.
        runtime = {"control": control, "worker": session.worker_url(settings) or control}
        if settings.maintenance_database_url is not None:
            runtime["maintenance"] = settings.maintenance_database_url.get_secret_value()
    if settings.migrate_database_url is None:
        return runtime["control"], runtime
    admin = settings.migrate_database_url.get_secret_value()
    session.check_url(admin, "migrate")
    return admin, runtime
