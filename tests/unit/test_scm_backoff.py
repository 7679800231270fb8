"""When a failed sync is tried again, and whether."""

import pytest

from actors.scm.backoff import (
    PERMANENT,
    RetryRules,
    Trouble,
    delay_seconds,
    trouble_of_git,
    trouble_of_http,
    trouble_of_svn,
)


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("fixed", [5, 5, 5, 5]),
        ("linear", [5, 10, 15, 20]),
        ("exponential", [5, 10, 20, 40]),
        ("unheard of", [5, 5, 5, 5]),
    ],
)
def test_the_wait_by_kind_and_attempt(backoff: str, waits: list[float]) -> None:
    """R001-190."""
    rules = RetryRules(backoff, interval=5, max_interval=1000, jitter=0)
    assert [delay_seconds(rules, attempt, 0.0) for attempt in (1, 2, 3, 4)] == waits


def test_the_wait_is_capped_then_spread_and_at_least_a_second() -> None:
    """R001-191: the cap comes before the jitter, so a wait may exceed it (C-38)."""
    rules = RetryRules("exponential", interval=5, max_interval=60, jitter=0.1)
    assert delay_seconds(rules, 30, 0.0) == 60
    assert delay_seconds(rules, 30, 1.0) == 66
    assert delay_seconds(rules, 30, -1.0) == 54
    assert delay_seconds(RetryRules("fixed", 1, 60, 1.0), 1, -1.0) == 1
    assert delay_seconds(rules, 100_000, 0.0) == 60


def test_what_the_server_asks_for_wins() -> None:
    rules = RetryRules("exponential", 5, 60, 0.1)
    assert delay_seconds(rules, 1, 1.0, retry_after=300) == 300
    assert delay_seconds(rules, 9, 1.0, retry_after=0) == 1


GIT = [
    ("fatal: Authentication failed for 'https://git.example.com/r.git/'", Trouble.AUTH),
    ("fatal: could not read Username for 'https://x': terminal prompts disabled", Trouble.AUTH),
    ("git@x: Permission denied (publickey).\nfatal: Could not read from remote repository.", Trouble.AUTH),
    ("Host key verification failed.", Trouble.AUTH),
    ("fatal: unable to access 'https://x/': The requested URL returned error: 403", Trouble.PERMISSION),
    ("fatal: repository 'https://x/r.git/' not found", Trouble.NOT_FOUND),
    ("fatal: '/srv/x' does not appear to be a git repository", Trouble.NOT_FOUND),
    ("fatal: transport 'ext' not allowed", Trouble.BAD_CONFIG),
    ("fatal: mismatched algorithms: client sha1; server sha256", Trouble.BAD_CONFIG),
    ("fatal: unable to access 'https://x/': The requested URL returned error: 302", Trouble.BAD_CONFIG),
    ("error: RPC failed; HTTP 429 curl 22 The requested URL returned error: 429", Trouble.RATE_LIMIT),
    ("ssh: connect to host x port 22: Connection timed out", Trouble.TIMEOUT),
    ("fatal: unable to access 'https://x/': Could not resolve host: x", Trouble.NETWORK),
    ("fatal: unable to access 'https://x/': The requested URL returned error: 503", Trouble.SERVER_ERROR),
    ("fatal: the remote end hung up unexpectedly", Trouble.CONNECTION),
    ("Failed to connect to x port 443: Connection refused", Trouble.CONNECTION),
    ("something nobody has heard of", Trouble.SERVER_ERROR),
]
SVN = [
    ("svn: E170001: Authentication failed", Trouble.AUTH),
    ("svn: E215004: Authentication failed and interactive prompting is disabled", Trouble.AUTH),
    ("svn: E175013: Access to '/x' forbidden", Trouble.PERMISSION),
    ("svn: E220004: Unreadable path encountered; access denied", Trouble.PERMISSION),
    ("svn: E170000: URL 'svn://x/y' non-existent in revision 5", Trouble.NOT_FOUND),
    ("svn: E210005: No repository found in 'svn://x/y'", Trouble.NOT_FOUND),
    ("svn: E230001: Server SSL certificate verification failed", Trouble.BAD_CONFIG),
    ("svn: E000110: Can't connect to host 'x': Connection timed out", Trouble.TIMEOUT),
    ("svn: E670002: Unknown hostname 'x'", Trouble.NETWORK),
    ("svn: E000111: Can't connect to host '127.0.0.1': Connection refused", Trouble.CONNECTION),
    ("svn: E210002: Network connection closed unexpectedly", Trouble.CONNECTION),
    ("svn: E175002: Unexpected HTTP status 500", Trouble.SERVER_ERROR),
]


@pytest.mark.parametrize(("said", "trouble"), GIT)
def test_what_git_says(said: str, trouble: Trouble) -> None:
    """R001-188: permanent troubles are told from those that pass."""
    assert trouble_of_git(said) is trouble


@pytest.mark.parametrize(("said", "trouble"), SVN)
def test_what_svn_says(said: str, trouble: Trouble) -> None:
    """R001-188: permanent troubles are told from those that pass."""
    assert trouble_of_svn(said) is trouble


def test_which_troubles_stay() -> None:
    """R001-186, R001-188: what configuration and permission refuse is not tried again, the rest is."""
    names = {trouble.value for trouble in Trouble if trouble.permanent}
    assert names == {"auth_error", "repo_not_found", "permission_denied", "bad_config"}
    assert {trouble for trouble in Trouble if trouble.permanent} == PERMANENT


def test_what_a_status_means() -> None:
    statuses = {401: "auth_error", 403: "permission_denied", 404: "repo_not_found", 429: "rate_limit"}
    statuses |= {408: "timeout", 500: "server_error", 502: "server_error", 504: "timeout", 400: "bad_config"}
    assert {status: trouble_of_http(status).value for status in statuses} == statuses
