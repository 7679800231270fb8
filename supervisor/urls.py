"""Which URL for whom. Separate login roles are the rule; one URL for all works, and `tenure doctor` warns.

A replica that only works (TENURE_LEAD=false) is the exception: it refuses every login but the worker's.
"""

import os
from dataclasses import dataclass
from typing import Any, Final

from supervisor.config import Settings
from supervisor.embedded import read_urls
from supervisor.errors import BadSettings, DatabaseUnreachable
from supervisor.store import Store
from supervisor.token_file import NAME as TOKEN

NOT_HELD: Final = {
    "database_url": "TENURE_DATABASE_URL (or [db])",
    "migrate_database_url": "TENURE_MIGRATE_DATABASE_URL",
    "maintenance_database_url": "TENURE_MAINTENANCE_DATABASE_URL",
    "api_token": "TENURE_API_TOKEN",
}
"""What a replica that only works must not have: a command that broke out would find it there."""
NOT_BESIDE: Final = (TOKEN, "embedded.json")
"""Files with secrets that replicas which may lead keep in their state directory."""


@dataclass(frozen=True, slots=True)
class RuntimeUrls:
    control: str | None
    """None: the replica only works."""
    worker: str
    listen: str
    maintenance: str


def runtime_urls(settings: Settings) -> RuntimeUrls:
    """From the settings, else those of the embedded database if one is running."""
    if not settings.lead:
        return _working_urls(settings)
    if settings.database_url is None:
        embedded = read_urls(settings.state_dir)
        if embedded is None:
            raise DatabaseUnreachable(
                what="TENURE_DATABASE_URL is not set and no embedded database is running"
            )
        return RuntimeUrls(embedded.control, embedded.worker, embedded.control, embedded.maintenance)
    control = settings.database_url.get_secret_value()
    worker = settings.worker_database_url or settings.database_url
    listen = settings.listen_database_url or settings.database_url
    maintenance = settings.maintenance_database_url or worker
    return RuntimeUrls(
        control, worker.get_secret_value(), listen.get_secret_value(), maintenance.get_secret_value()
    )


def _working_urls(settings: Settings) -> RuntimeUrls:
    """Take the worker's login alone; never the embedded database's, whose file has every password."""
    held = [name for field, name in NOT_HELD.items() if getattr(settings, field) is not None]
    if held:
        raise BadSettings(
            what=f"a replica that only works (--no-lead, TENURE_LEAD=false) must not hold {', '.join(held)}: "
            "unset it here"
        )
    if beside := [name for name in NOT_BESIDE if os.path.lexists(settings.state_dir / name)]:
        raise BadSettings(
            what=f"TENURE_STATE_DIR={settings.state_dir} holds secrets of replicas that may lead "
            f"({', '.join(beside)}): give a replica that only works a directory of its own"
        )
    if settings.worker_database_url is None:
        raise BadSettings(
            what="a replica that only works (--no-lead, TENURE_LEAD=false) needs TENURE_WORKER_DATABASE_URL, "
            "the URL of a login in tenure_worker"
        )
    worker = settings.worker_database_url.get_secret_value()
    listen = settings.listen_database_url or settings.worker_database_url
    return RuntimeUrls(None, worker, listen.get_secret_value(), worker)


async def check_worker_logins(urls: RuntimeUrls, *, pooled: bool) -> None:
    """Refuse a login that may do more than work, whatever the setting that gives it is called."""
    given = {urls.listen: "TENURE_LISTEN_DATABASE_URL", urls.worker: "TENURE_WORKER_DATABASE_URL"}
    for url, name in given.items():
        store = Store(url, name="tenure start", size=1, pooled=pooled)
        try:
            login = await store.row("read_login")
        finally:
            await store.close()
        if login is not None and (fault := login_fault(login)):
            raise BadSettings(what=f"the login {login['name']} of {name} {fault}")


def login_fault(login: Any) -> str | None:
    """What is wrong with the login of a replica that only works; `login` is a row of `read_login`."""
    if login["superuser"]:
        return "is a superuser: a replica that only works takes a login in tenure_worker"
    if login["controls"] or login["rewrites"]:
        return _more(login)
    if not login["works"]:
        return "may not work: run `tenure migrate` with TENURE_WORKER_DATABASE_URL set as here"
    return _more(login) if login["beyond"] else None


def _more(login: Any) -> str:
    more = f" ({', '.join(login['beyond'][:3])})" if login["beyond"] else ""
    return f"may do more than work{more}: a replica that only works takes a login in tenure_worker alone"
