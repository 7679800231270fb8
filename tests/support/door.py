"""The door of a replica in tests: one token that helpers set and send."""

from typing import Any, Final

import httpx

from supervisor.api.credentials import COOKIE, form_token
from supervisor.config import Settings

TOKEN: Final = "the-one-token-of-the-tests"
BEARER: Final = {"Authorization": f"Bearer {TOKEN}"}
HOLDER: Final = "TENURE_API_TOKEN"
"""How the audit names who holds it."""


def guarded(**settings: Any) -> Settings:
    """Settings with the token."""
    return Settings(**{"api_token": TOKEN, **settings})


def client(app: Any, base_url: str = "http://127.0.0.1") -> httpx.AsyncClient:
    """A program that holds the token, without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base_url, headers=BEARER)


async def log_in(http: httpx.AsyncClient) -> None:
    """Make it a browser that has logged in: its cookie, and the token of its forms."""
    answer = await http.post("/login", data={"token": TOKEN})
    assert answer.status_code == 303, answer.text
    http.headers["X-CSRF-Token"] = form_token(http.cookies[COOKIE].encode())
