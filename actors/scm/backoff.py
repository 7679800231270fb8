"""What went wrong with a source, whether trying again can help, and when. Pure.

The wait before attempt n + 1 is base (fixed, and anything unknown), base * n (linear) or base * 2^(n-1)
(exponential), capped, then spread by +/- jitter, and at least a second: with jitter it may exceed the cap. A
Retry-After of the server wins over the formula.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["RetryRules", "Trouble", "delay_seconds", "trouble_of_git", "trouble_of_http", "trouble_of_svn"]

MIN_SECONDS: Final = 1.0


class Trouble(Enum):
    """A class of failure; the value is what rows and messages call it."""

    AUTH = "auth_error"
    NOT_FOUND = "repo_not_found"
    PERMISSION = "permission_denied"
    BAD_CONFIG = "bad_config"
    RATE_LIMIT = "rate_limit"
    TIMEOUT = "timeout"
    NETWORK = "network"
    SERVER_ERROR = "server_error"
    CONNECTION = "connection"

    @property
    def permanent(self) -> bool:
        """Trying again changes nothing until somebody changes the configuration."""
        return self in PERMANENT


PERMANENT: Final = frozenset({Trouble.AUTH, Trouble.NOT_FOUND, Trouble.PERMISSION, Trouble.BAD_CONFIG})


@dataclass(frozen=True, slots=True)
class RetryRules:
    """[scm.sync] retry_backoff, retry_interval, retry_max_interval and retry_jitter."""

    backoff: str = "exponential"
    interval: float = 5.0
    max_interval: float = 60.0
    jitter: float = 0.1


def delay_seconds(rules: RetryRules, attempt: int, roll: float, *, retry_after: float | None = None) -> float:
    """How long to wait after failed attempt `attempt` (from 1); `roll` is a random number of [-1, 1]."""
    if retry_after is not None:
        return max(MIN_SECONDS, retry_after)
    n = max(1, attempt)
    steps = {"linear": n, "exponential": 2.0 ** min(n - 1, 64)}
    capped = min(rules.interval * steps.get(rules.backoff, 1), rules.max_interval)
    return max(MIN_SECONDS, capped + capped * rules.jitter * roll)


def trouble_of_http(status: int) -> Trouble:
    known = {401: Trouble.AUTH, 403: Trouble.PERMISSION, 404: Trouble.NOT_FOUND, 410: Trouble.NOT_FOUND}
    if status == 429:
        return Trouble.RATE_LIMIT
    if status in (408, 504):
        return Trouble.TIMEOUT
    if status in known:
        return known[status]
    return Trouble.SERVER_ERROR if status >= 500 else Trouble.BAD_CONFIG


Signs = Sequence[tuple[Trouble, re.Pattern[str]]]


def _signs(*rows: tuple[Trouble, str]) -> Signs:
    return tuple((trouble, re.compile(pattern, re.IGNORECASE)) for trouble, pattern in rows)


# The first that fits is it: a failed login is also an unreadable repository.
GIT: Final = _signs(
    (Trouble.RATE_LIMIT, r"returned error: 429|too many requests|rate limit"),
    (Trouble.AUTH, r"authentication failed|could not read (username|password)|returned error: 401"),
    (Trouble.AUTH, r"permission denied \(|host key verification failed|too many authentication failures"),
    (Trouble.PERMISSION, r"returned error: 403|dubious ownership|access denied|not permitted"),
    (Trouble.NOT_FOUND, r"repository '.*' not found|returned error: (404|410)|not appear to be a git repo"),
    (Trouble.NOT_FOUND, r"not valid: is this a git repo|repository not found|no such file or directory"),
    (Trouble.BAD_CONFIG, r"transport '.*' not allowed|mismatched algorithms|unable to find remote helper"),
    (Trouble.BAD_CONFIG, r"update url base from redirection|returned error: 30\d|unsupported protocol"),
    (Trouble.BAD_CONFIG, r"certificate problem|certificate verification failed|fsck error"),
    (Trouble.TIMEOUT, r"timed out|operation too slow|timeout|returned error: (408|504)"),
    (Trouble.NETWORK, r"could not resolve|name or service not known|network is unreachable|no route to host"),
    (Trouble.SERVER_ERROR, r"returned error: 5\d\d|remote error: |unexpected disconnect"),
    (Trouble.CONNECTION, r"connection (refused|reset|closed)|failed to connect|early eof|hung up"),
)  # fmt: skip

# By number where svn gives one: the words are translated, and differ between versions.
SVN: Final = _signs(
    (Trouble.RATE_LIMIT, r"\b429\b|too many requests"),
    (Trouble.AUTH, r"E170001|E215004|authentication (failed|error)|can't get (password|username)"),
    (Trouble.AUTH, r"permission denied \(|host key verification failed"),
    (Trouble.PERMISSION, r"E175013|E220004|E220001|E195023|forbidden|not authori[sz]ed|E000013"),
    (Trouble.NOT_FOUND, r"E170000|E160013|E200009|E180001|E210005|E175011|E195012|no repository found"),
    (Trouble.BAD_CONFIG, r"E230001|certificate|E125002|E205000|E170013.*unrecognized url|E195019|E120112"),
    (Trouble.TIMEOUT, r"timed out|E175012|E000110|E120106.*time"),
    (Trouble.NETWORK, r"unknown hostname|E67000[238]|name or service not known|E000101|E000113"),
    (Trouble.CONNECTION, r"E000111|E000104|E000032|connection (refused|reset|closed)|E210002|E120108"),
    (Trouble.SERVER_ERROR, r"E175002|E120106|E210\d\d\d|E160\d\d\d|\b5\d\d\b"),
)  # fmt: skip


def trouble_of_git(stderr: str) -> Trouble:
    """What failed, from what git said. What it does not say plainly may be over by the next time."""
    return _first(GIT, stderr)


def trouble_of_svn(stderr: str) -> Trouble:
    return _first(SVN, stderr)


def _first(signs: Signs, stderr: str) -> Trouble:
    return next((trouble for trouble, sign in signs if sign.search(stderr)), Trouble.SERVER_ERROR)
