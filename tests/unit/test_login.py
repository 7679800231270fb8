"""URLs into logins, passwords into verifiers."""

import pytest

from schemas.login import BadUrl, Login, gather_logins, parse_url, scram_verifier


def test_a_url_is_taken_apart() -> None:
    url = parse_url("postgresql://ops%40x:p%2Fw@db:5433/my%20base?sslmode=require", "migrate")
    assert (url.user, url.password, url.database) == ("ops@x", "p/w", "my base")
    other = parse_url("postgres://?host=/run&user=ops&password=secret&dbname=base", "migrate")
    assert (other.user, other.password, other.database) == ("ops", "secret", "base")
    several = parse_url("postgresql://ops:pw@[::1]:5433,db:5434/base", "migrate")
    assert (several.user, several.password, several.database) == ("ops", "pw", "base")
    bare = parse_url("postgresql://db", "migrate")
    assert (bare.user, bare.password, bare.database) == (None, None, None)


@pytest.mark.parametrize(
    "url",
    ["mysql://u:secret@h/d", "u:secret@h/d", "postgresql://u:sec#ret@h/d", "postgresql://u:sec/ret@h/d"],
)
def test_a_bad_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_url(url, "control")
    assert "control" in str(caught.value)
    assert "sec" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_one_user_may_serve_several_keys() -> None:
    app, web = "postgresql://app:a@h/d", "postgresql://web:w@h/d"
    assert gather_logins({"control": app, "worker": app, "console": web}) == (
        Login("app", ("tenure_control", "tenure_worker"), "a"),
        Login("web", ("tenure_console",), "w"),
    )


@pytest.mark.parametrize(
    ("urls", "complaint"),
    [
        ({"leader": "postgresql://u@h/d"}, "leader is not one of control, worker"),
        ({"control": "postgresql://h/d"}, "names no user"),
        ({"control": "postgresql://u:one@h/d", "worker": "postgresql://u:two@h/d"}, "different passwords"),
    ],
)
def test_logins_that_contradict_themselves_are_refused(urls: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadUrl, match=complaint) as caught:
        gather_logins(urls)
    assert not any(secret in str(caught.value) for secret in ("one@", "two@", "one,"))


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(gather_logins({"control": "postgresql://u:secret@h/d"}))
    assert "secret" not in repr(parse_url("postgresql://u:secret@h/d", "control"))


def test_the_verifier_is_that_of_the_rfc() -> None:
    """RFC 7677, section 3: user `user`, password `pencil`."""
    from base64 import b64decode

    verifier = scram_verifier("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert verifier == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    assert scram_verifier("pencil") != scram_verifier("pencil")


def test_equivalent_spellings_of_a_password_have_one_verifier() -> None:
    salt = b"0123456789abcdef"
    assert scram_verifier("caf\u0065\u0301", salt) == scram_verifier("caf\u00e9", salt)
    assert scram_verifier("a\u00a0b", salt) == scram_verifier("a b", salt)
    assert scram_verifier("a\u00adb", salt) == scram_verifier("ab", salt)
    # A forbidden character: the server takes the raw bytes, so preparing would lock the user out.
    assert scram_verifier("\u00e9\u0007", salt) != scram_verifier("e\u0301\u0007", salt)
