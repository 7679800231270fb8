"""`tenure migrate`: bring the database to this version's schema."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import anyio

from schemas import migrate as schema
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.config import Settings, load_settings


def migrate(as_json: Json = False) -> int:
    """Create or upgrade the schema; safe to run at any time, from several places at once.

    Uses TENURE_MIGRATE_DATABASE_URL, a login that may create roles, or TENURE_DATABASE_URL. Logins for the
    replicas are made from TENURE_DATABASE_URL and TENURE_WORKER_DATABASE_URL. Without the rights it prints
    the SQL that an administrator has to run, and exits 1. Installed packages' migrations are applied too.

    Example: `TENURE_MIGRATE_DATABASE_URL=postgresql://admin@db/app tenure migrate`
    """
    from supervisor.wiring import lease_rights  # noqa: PLC0415  loads every domain; a URL is checked first

    admin, runtime = _urls(load_settings())
    rights = lease_rights()
    tell = (lambda _line: None) if as_json else (lambda line: output.say("- ", line))
    try:
        report = anyio.run(partial(schema.migrate, admin, runtime_urls=runtime, report=tell, rights=rights))
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
        output.print_json({**asdict(report), "changed": report.changed})
    else:
        state = "is now" if report.changed else "was already"
        output.say(f"{report.database} {state} at schema {report.version}")
    return 0


def _urls(settings: Settings) -> tuple[str, Mapping[str, str]]:
    """Who migrates, and the logins that must work afterwards."""
    if settings.database_url is None and settings.migrate_database_url is None:
        urls = session.embedded_urls(settings)
        return urls.admin, urls.runtime()
    runtime = {}
    if settings.database_url is not None:
        control = session.control_url(settings)
        # Without a URL of its own the worker half of a replica uses the control URL.
        runtime = {"control": control, "worker": session.worker_url(settings) or control}
    if settings.migrate_database_url is None:
        return runtime["control"], runtime
    admin = settings.migrate_database_url.get_secret_value()
    session.check_url(admin, "migrate")
    return admin, runtime
