"""File names as text, and the relative paths that are accepted."""

import pytest

from actors.dedup.names import BadPath, check_given, check_relative, to_bytes, to_text
from supervisor.errors import BadInput


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"plain.jpg", "plain.jpg"),
        ("Käse 🧀".encode(), "Käse 🧀"),
        (b"caf\xe9", "caf\uf7e9"),
        (b"\xff\xfe", "\uf7ff\uf7fe"),
        ("\uf7e9".encode(), "\uf7ef\uf79f\uf7a9"),  # a genuine one: its three bytes, each escaped
        ("\uf700".encode(), "\uf700"),  # outside of the escapes: as it is
        (b"\xed\xa0\x80", "\uf7ed\uf7a0\uf780"),  # a surrogate in UTF-8 clothing
        (b"a\nb\tc\x7f", "a\nb\tc\x7f"),
        (b"", ""),
    ],
)
def test_a_name_has_one_text(name: bytes, text: str) -> None:
    assert to_text(name) == text
    assert to_bytes(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "\uf7c3\uf7a4",  # these two bytes are an ä: its name has another text
        "\uf7ef\uf79f\uf7a9\uf7bf\ud800",
        "\udce9",
        "a\0b",
        "\uf78d\0",
    ],
)
def test_a_text_that_no_name_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|surrogates"):
        to_bytes(text)


def test_nul_is_in_no_name() -> None:
    with pytest.raises(ValueError, match="NUL"):
        to_text(b"a\0b")


@pytest.mark.parametrize(
    "path", ["photos", "photos/2024/a b.jpg", "...", "a/..b", "a~/b", "Ω/\uf7e9", "a\\b"]
)
def test_a_plain_relative_path_is_taken(path: str) -> None:
    assert check_given(path) == path
    assert check_relative(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc",
        "..",
        "a/..",
        "../a",
        "a/../b",
        ".",
        "./a",
        "a/.",
        "a//b",
        "a/",
        "a\0",
        "\ud800",
        "\uf7c3\uf7a4",
    ],
)
def test_what_climbs_or_names_nothing_is_refused(path: str) -> None:
    """R000-99: absolute paths and `..` are refused."""
    for check in (check_given, check_relative):
        with pytest.raises(BadPath) as caught:
            check(path)
        assert isinstance(caught.value, BadInput)
        str(caught.value).encode()  # it can be printed and stored, whatever was given


@pytest.mark.parametrize("path", ["~", "~root/x", "~/x", "$HOME", "a/$HOME/b", "a$"])
def test_what_a_shell_would_replace_is_refused_of_people_only(path: str) -> None:
    """R000-99: `~` and `$` are refused where a path is given; a file with such a name is a file."""
    with pytest.raises(BadPath):
        check_given(path)
    assert check_relative(path) == path
