"""`tenure domain`: the kinds of work, paused or not."""

from functools import partial
from typing import Annotated, Any

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import NotFound
from supervisor.store import Store

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="Such as command.", show_default=False)]

app = typer.Typer(no_args_is_help=True, help="Domains: kinds of work, which can be paused as a whole.")


@app.command()
def pause(domain: Domain, as_json: Json = False) -> int:
    """Give out nothing more of a domain, on any replica; what is running ends.

    Exits 5 when there is no such domain.

    Example: `tenure domain pause command`   then `tenure run why ID` says so
    """
    return _switch(domain, paused=True, as_json=as_json)


@app.command()
def resume(domain: Domain, as_json: Json = False) -> int:
    """Go on with a paused domain. Exits 5 when there is no such domain.

    Example: `tenure domain resume command`
    """
    return _switch(domain, paused=False, as_json=as_json)


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the domains that are installed here, have jobs, or have replicas that work for them.

    Example: `tenure domain list`
    """
    domains = session.run(_domains)
    if as_json:
        output.print_json([{name: value for name, value in row.items() if name != "now"} for row in domains])
        return 0
    output.print_table(
        ["DOMAIN", "INSTALLED", "REPLICAS", "JOBS", "PAUSED", "BY"],
        (
            [
                row["domain"],
                "yes" if row["installed"] else "no",
                row["replicas"],
                row["jobs"],
                output.age(row["now"], row["paused_at"]) if row["paused_at"] else "no",
                row["paused_by"],
            ]
            for row in domains
        ),
        empty="no domains",
    )
    return 0


def _switch(domain: str, *, paused: bool, as_json: bool) -> int:
    encodable(domain, "the domain")
    changed = session.run(partial(_set_pause, domain, paused))
    if as_json:
        output.print_json({"domain": domain, "paused": paused, "changed": changed})
    else:
        already = "" if changed else " already"
        output.say(f"domain {domain} {f'is{already} paused' if paused else f'is{already} working'}")
    return 0


async def _set_pause(domain: str, paused: bool, store: Store) -> bool:
    if all(row["domain"] != domain for row in await _domains(store)):
        raise NotFound(kind="domain", name=domain)
    return bool(await store.value("pause_domain", session.actor(), domain, paused))


async def _domains(store: Store) -> list[dict[str, Any]]:
    """Also those that are only installed elsewhere: a replica may know more than this shell."""
    from supervisor.wiring import actors  # noqa: PLC0415  loads every domain

    installed = sorted({actor.domain for actor in actors().values()})
    bound = load_settings().timings.confirm_after
    return [dict(row) for row in await store.rows("list_known_domains", installed, bound)]
