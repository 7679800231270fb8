"""How a page is drawn, for the console's own pages and for those of a domain.

A domain's pages, in four steps:

    from supervisor.console import page

    def pages(replica: ReplicaView) -> APIRouter:
        router = page.PageRouter(
            templates=Path(__file__).parent / "templates",
            navigation=(page.Link("Libraries", "/libraries"),),
        )

        @router.get("/libraries")
        async def libraries(request: Request) -> Response:
            rows = await replica.store.rows("list_libraries")
            return page.render(request, "dedup/libraries.html", rows=rows, now=rows[0]["now"])

        return router

1. `Domain.pages` names that function. Its paths, and those of `navigation`, are below `/NAME`.
2. Templates lie in the directory given, and are named `NAME/file.html`. They extend `page.html` and fill the
   blocks `title`, `content` and, for a page that is not drawn again by itself, an empty `live`. In them, `m`
   has badges, buttons and links (`macros.html`), `ago(moment)` is a time, and `may_operate` or
   `may_administer` says whether to offer a button. `status` is the answer's HTTP status, no name for a value
   of the page.
3. An error of ours raised in a handler (NotFound, Conflict, ...) becomes a page that says what to do.
4. A form posts with `{{ m.csrf_field(csrf) }}` in it; its route takes `Form` and `Operator` or `Admin` of
   `supervisor.console.forms`, and answers `done(...)`.

Everything is escaped. What users wrote also passes the filter `inert`, which shows control characters. No
inline script and no `style` attribute: the policy that the gate sends with every page forbids both.
"""

import base64
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse

from supervisor import parameters
from supervisor.api.csrf import csrf_of
from supervisor.api.origin import is_secure, local_path
from supervisor.api.principal import Role, principal_of
from supervisor.api.problem import STATUS_OF_EXIT
from supervisor.console import inert, moments
from supervisor.console.assets import Assets
from supervisor.errors import NotFound, OutcomeUnknown, TenureError

HERE: Final = Path(__file__).parent / "templates"
THEME_COOKIE: Final = "tenure_theme"
FLASH_COOKIE: Final = "tenure_flash"
THEMES: Final = ("auto", "light", "dark")
FLASH_LENGTH: Final = 600


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation."""

    title: str
    path: str


LISTS: Final = {
    "job": Link("See which jobs there are", "/jobs"),
    "run": Link("See which runs there are", "/runs"),
    "worker": Link("See which replicas there are", "/workers"),
    "domain": Link("See which domains there are", "/domains"),
    "setting": Link("See which settings there are", "/settings"),
}
"""For who asked for one that is not there."""


class PageRoute(APIRoute):
    """Errors of its handler are pages too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_as_page(request: Request) -> Response:
            try:
                return await handle(request)
            except TenureError as error:
                return refuse(request, _status_of(error), str(error), error.advice, _list_of(error))
            except RequestValidationError as error:
                faults = "; ".join(
                    f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in error.errors()
                )
                return refuse(request, 422, "the address or the form does not fit", faults)
            except HTTPException as error:
                return refuse(request, error.status_code, str(error.detail), "")

        return handle_as_page


class PageRouter(APIRouter):
    """`templates` and `navigation` are for a domain's router; see above."""

    def __init__(self, *, templates: Path | None = None, navigation: Sequence[Link] = ()) -> None:
        super().__init__(route_class=PageRoute, include_in_schema=False)
        self.templates = templates
        self.navigation = tuple(navigation)


@dataclass(frozen=True, slots=True)
class Console:
    """What all pages share."""

    environment: Environment
    assets: Assets
    domain_links: Sequence[Link] = field(default=())

    @classmethod
    def make(cls, assets: Assets, domains: "dict[str, PageRouter] | None" = None) -> "Console":
        mounted = domains or {}
        rooms = {name: router.templates for name, router in mounted.items() if router.templates is not None}
        loader = ChoiceLoader(
            [
                FileSystemLoader(HERE),
                PrefixLoader({name: FileSystemLoader(room) for name, room in rooms.items()}),
            ]
        )
        links = [
            Link(link.title, f"/{name}{link.path}")
            for name, router in mounted.items()
            for link in router.navigation
        ]
        return cls(_environment(loader), assets, links)


def _environment(loader: ChoiceLoader) -> Environment:
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "inert": inert.visible,
        "shell_word": inert.shell_word,
        "process": inert.process,
        "short_worker": inert.short_worker,
        "sentence": inert.sentence,
        "commands": inert.commands,
        "run_links": inert.run_links,
        "log_text": inert.log_text,
        "pretty_json": inert.pretty_json,
        "described": lambda spec: inert.visible(parameters.describe(spec)),
        "blank_arguments": parameters.blank,
        "duration": moments.duration,
        "absolute": lambda value: moments.absolute(value) if value else "",
    }
    environment.globals |= {"clock": moments.clock_element, "path_of": path_of}
    return environment


def render(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """The page; `now`, the database's time, makes `ago(moment)` and `lasting(moment)` work in it."""
    console = console_of(request)
    flash = _flash_of(request)
    now: datetime | None = context.get("now")
    role = principal_of(request).role
    text = console.environment.get_template(template).render(
        **{
            "now": None,
            "ago": lambda value, missing="": moments.time_element(value, now, missing) if now else "",
            "lasting": lambda value: moments.lasting_element(value, now) if now else "",
            "may_operate": role >= Role.OPERATE,
            "may_administer": role >= Role.ADMIN,
            "principal": principal_of(request),
            "csrf": csrf_of(request),
            "path": request.url.path,
            "here": quote(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            "theme": _theme_of(request),
            "themes": THEMES,
            "asset": console.assets.path,
            "domain_links": console.domain_links,
            "summary": getattr(request.state, "summary", None),
            "replica_id": getattr(request.state, "replica_id", None),
            "flash": flash,
            **context,
        }
    )
    answer = HTMLResponse(text, status)
    if flash is not None:
        answer.delete_cookie(FLASH_COOKIE)
    return answer


def refuse(request: Request, status: int, what: str, advice: str, instead: Link | None = None) -> Response:
    """`instead` of the advice: a page that does what it says."""
    return render(
        request, "error.html", status=status, code=status, what=what, advice=advice, instead=instead
    )


def done(request: Request, path: str, text: str, *, failed: bool = False) -> Response:
    """After a form: to a page that says what was done. `path` is ours, never what somebody sent."""
    answer = RedirectResponse(local_path(path), 303)
    message = json.dumps({"failed": failed, "text": text[:FLASH_LENGTH]})
    answer.set_cookie(
        FLASH_COOKIE,
        base64.urlsafe_b64encode(message.encode()).decode(),
        max_age=60,
        httponly=True,
        samesite="strict",
        secure=is_secure(request.url.scheme, request.headers),
    )
    return answer


def path_of(*parts: str | int) -> str:
    """A path of ours; a job's name may hold slashes, and they stay."""
    return "/" + "/".join(quote(str(part), safe="/:") for part in parts)


def console_of(request: Request) -> Console:
    """Set for every page by the site; a page outside of it, such as the login, gets one without domains."""
    console: Console = getattr(request.state, "console", None) or _plain_console()
    return console


_PLAIN: list[Console] = []


def _plain_console() -> Console:
    if not _PLAIN:
        _PLAIN.append(Console.make(Assets.read()))
    return _PLAIN[0]


def _list_of(error: TenureError) -> Link | None:
    return LISTS.get(str(error.facts.get("kind"))) if isinstance(error, NotFound) else None


def _status_of(error: TenureError) -> int:
    if isinstance(error, OutcomeUnknown):
        return 503
    return error.http_status or STATUS_OF_EXIT[error.exit_code]


def _theme_of(request: Request) -> str:
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else "auto"


def _flash_of(request: Request) -> dict[str, Any] | None:
    try:
        given = json.loads(base64.urlsafe_b64decode(request.cookies.get(FLASH_COOKIE, "")))
        return {"failed": bool(given["failed"]), "text": str(given["text"])[:FLASH_LENGTH]}
    except (ValueError, KeyError, TypeError, RecursionError):  # whatever another port of this host has set
        return None
