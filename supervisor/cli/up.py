"""`tenure up`: one replica in the foreground, or several with an embedded database under one parent."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from pydantic import SecretStr

from schemas.migrate import check
from supervisor import umask
from supervisor.cli import output, session
from supervisor.cli.sample import seed
from supervisor.config import Settings, load_settings
from supervisor.errors import BadInput, TenureError
from supervisor.login_codes import LoginCodes
from supervisor.logs import configure, logger
from supervisor.serving import register, url_of
from supervisor.state_dir import UnusableDirectory, close_state_dir, is_open, make_state_dir
from supervisor.store import Store
from supervisor.token_file import load_token


def up(
    replicas: Annotated[
        int, typer.Option(min=1, max=100, help="How many replicas, on ports P, P+1, ...")
    ] = 1,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="P; else TENURE_HTTP_PORT, 8080.", show_default=False)
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Add sample jobs and run them.")] = False,
    lead: Annotated[
        bool | None,
        typer.Option(
            "--lead/--no-lead",
            help="Stand for election, or only work; else TENURE_LEAD, true.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Run replicas in the foreground; Ctrl-C drains them.

    Without TENURE_DATABASE_URL an embedded PostgreSQL is started and migrated. With one the schema must be
    there: `tenure migrate` makes it.

    Without TENURE_API_TOKEN, on loopback, a token is made in the state directory, and the terminal shows a
    link that logs in one browser: `tenure open` prints another.

    With --no-lead a replica only works. It holds the login of TENURE_WORKER_DATABASE_URL and refuses to start
    with any other; it serves /healthz, /readyz and /metrics and needs no token.

    Examples:

    - `tenure up --replicas 3 --sample`   three replicas, a database and something to look at
    - `TENURE_DATABASE_URL=postgresql://... tenure up`   one replica, as a container runs it
    - `TENURE_WORKER_DATABASE_URL=postgresql://... tenure up --no-lead`   one that holds no secret but this
    """
    # Loaded here: the other commands start faster without the web server and the domains.
    from supervisor.api.server import check_bind  # noqa: PLC0415
    from supervisor.fleet import run_fleet  # noqa: PLC0415
    from supervisor.wiring import run_replica  # noqa: PLC0415

    chosen: dict[str, Any] = {"http_port": port, "lead": lead}
    settings = load_settings(**{name: value for name, value in chosen.items() if value is not None})
    if not settings.lead:
        _check_alone(replicas, sample=sample)
    elif settings.database_url is None:  # a new database has no tokens; any other is asked for them
        check_bind(settings)
    configure(settings)
    session.check_urls(settings)
    if not settings.lead:
        umask.restrict()
        _close(settings)
        return run_replica(settings)
    if settings.database_url is not None:
        anyio.run(check, session.control_url(settings)).refuse_old()
    umask.restrict()
    given, settings = settings, _with_token(settings)
    if replicas > 1 or settings.database_url is None:
        return run_fleet(settings, replicas, prepare=_seed if sample else None)
    if sample:
        anyio.run(_seed, settings)
    with ExitStack() as registered:
        show = given.api_token is None
        return run_replica(settings, announce=partial(_announce, settings, registered, show))


def _with_token(settings: Settings) -> Settings:
    """Close the state directory to other users; on loopback, take its token where none is set."""
    from supervisor.api.server import is_loopback  # noqa: PLC0415  the web server

    token = settings.api_token
    if token is None and is_loopback(settings.http_host):
        with _naming(settings.state_dir):
            make_state_dir(settings.state_dir)
    _close(settings)  # first: nothing in it is believed that others may still exchange
    if token is None and is_loopback(settings.http_host):
        with _naming(settings.state_dir):
            token = SecretStr(load_token(settings.state_dir))
    return settings.model_copy(update={"api_token": token})


def _close(settings: Settings) -> None:
    """Close the state directory to other users, and name what they still reach."""
    was_open = is_open(settings.state_dir)
    with _naming(settings.state_dir):
        for path in close_state_dir(settings.state_dir):
            logger("up").warning("other users may reach this", path=str(path))
    if was_open:
        logger("up").warning(
            "other users could write here: look whether all of it is yours", path=str(settings.state_dir)
        )


@contextmanager
def _naming(state: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnusableDirectory(path=error.filename or state, what=error.strerror or error) from error


def _announce(settings: Settings, registered: ExitStack, show: bool, port: int) -> None:
    """Let `tenure open` find this replica, and print the way in where it is asked for."""
    if settings.api_token is None:
        return
    url = url_of(settings.http_host, port)
    try:
        registered.callback(register(settings.state_dir, url))
        if show:
            way, note = LoginCodes(settings.state_dir).way_in(url, sys.stdout)
            output.say(f"  console   {way}")
            output.say(f"            {note}")
    except (OSError, TenureError) as error:
        logger("up").warning("`tenure open` cannot find this replica", reason=str(error))


def _check_alone(replicas: int, *, sample: bool) -> None:
    """Refuse what goes with replicas that may lead."""
    if replicas > 1:
        raise BadInput(
            what="--replicas starts replicas that may lead; one that only works is started by itself: "
            "`tenure up --no-lead --port P` for each, or raise TENURE_SLOTS"
        )
    if sample:
        raise BadInput(
            what="--sample takes the control login, which a replica that only works does not hold: "
            "give it to one that may lead"
        )


async def _seed(settings: Settings) -> None:
    from supervisor.wiring import add_samples  # noqa: PLC0415  loads every domain

    store = Store(session.control_url(settings), name="tenure sample", size=1)
    try:
        await seed(store)
        await add_samples(store, settings)
    finally:
        await store.close()
