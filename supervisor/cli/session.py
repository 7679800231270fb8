"""From the settings to an open store: where the database is, and errors that hold no secret."""

import os
import pwd
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import anyio
import typer
from pydantic import SecretStr

from schemas.hosts import around_hosts, each_host
from schemas.login import BadUrl, parse_url
from schemas.migrate import check
from supervisor.config import Settings, load_settings
from supervisor.embedded import Urls, read_urls
from supervisor.errors import DatabaseUnreachable, TenureError
from supervisor.store import Store

T = TypeVar("T")
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

# A table, schema, function or column that is not there: most likely nobody has migrated this database.
MISSING: Final = frozenset({"42P01", "3F000", "42883", "42703"})
DENIED: Final = "42501"


class NoDatabase(TenureError):
    """no database: TENURE_DATABASE_URL is unset, and no embedded database runs in {state_dir}"""

    hint = "start one with `tenure up`, or set TENURE_DATABASE_URL"
    exit_code = 3


class NotAllowed(TenureError):
    """the role of this URL may not do that: {what}"""

    hint = "use the URL of a login in tenure_control; `tenure doctor` shows the rights"


def control_url(settings: Settings) -> str:
    """The URL of the control role: the configured one, else that of the embedded database."""
    if settings.database_url is not None:
        return _checked(settings.database_url, "database")
    return embedded_urls(settings).control


def worker_url(settings: Settings) -> str | None:
    """The URL of the worker role; None where the worker half of a replica uses the control URL."""
    if settings.database_url is None:
        return embedded_urls(settings).worker
    return _checked(settings.worker_database_url, "worker") if settings.worker_database_url else None


def embedded_urls(settings: Settings) -> Urls:
    urls = read_urls(settings.state_dir)
    if urls is None:
        raise NoDatabase(state_dir=settings.state_dir)
    return urls


def check_urls(settings: Settings) -> None:
    """Every URL a replica uses."""
    for what in ("database", "worker_database", "listen_database", "maintenance_database"):
        if (url := getattr(settings, f"{what}_url")) is not None:
            _checked(url, what)


def _checked(url: SecretStr, what: str) -> str:
    check_url(url.get_secret_value(), what)
    return url.get_secret_value()


def check_url(url: str, what: str = "database") -> None:
    """Refuse a malformed URL here: deeper down, a message could quote a piece of it, and so of a password."""
    try:
        before, _, _ = around_hosts(url)
        if before.count("@") > 1:
            fault = f"the {what} URL holds more than one @: in a password, @ is written as %40"
            raise DatabaseUnreachable(what=fault)
        for one in each_host(url):
            parse_url(one, what)
    except BadUrl as bad:
        raise DatabaseUnreachable(what=str(bad)) from None
    except ValueError:
        raise DatabaseUnreachable(what=f"the {what} URL cannot be read") from None


def run(work: Callable[[Store], Awaitable[T]], settings: Settings | None = None) -> T:
    """Do it with a store on the control URL."""
    settings = settings or load_settings()
    return run_at(control_url(settings), work, pooled=settings.pooler == "transaction")


def run_at(url: str, work: Callable[[Store], Awaitable[T]], *, pooled: bool = False) -> T:
    async def with_store() -> T:
        store = Store(url, name="tenure cli", size=2, pooled=pooled)
        try:
            return await work(store)
        except Exception as error:
            sqlstate = getattr(error, "sqlstate", None)
            if sqlstate in MISSING:
                (await check(url)).refuse_old()
            if sqlstate == DENIED:
                raise NotAllowed(what=str(error)) from None
            raise
        finally:
            await store.close()

    return anyio.run(with_store)


def actor() -> str:
    """Return who asks, for the audit: the user of this process, whatever its environment says."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:  # a container's user without a name
        return f"cli:{os.getuid()}"


def wall_clock() -> datetime:
    """Only to see whether a schedule ever fires: what is due is decided by the database's clock."""
    return datetime.now(UTC)
