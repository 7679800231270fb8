"""One diff out of the files that GitLab tells of. Pure."""

from typing import Any

import pytest

from actors.scm.gitlab_answer import BadAnswer
from actors.scm.gitlab_diff import file_diff, gap, rendered

HUNK = "@@ -1 +1 @@\n-old\n+new\n"


def told(**more: Any) -> dict[str, Any]:
    facts = {"old_path": "a.c", "new_path": "a.c", "a_mode": "100644", "b_mode": "100644", "diff": HUNK}
    return facts | {"new_file": False, "deleted_file": False, "renamed_file": False} | more


def text(*files: dict[str, Any]) -> str:
    return b"".join(rendered([file_diff(one) for one in files])).decode()


def test_a_change() -> None:
    assert text(told()) == f"diff --git a/a.c b/a.c\n--- a/a.c\n+++ b/a.c\n{HUNK}"


def test_the_lines_above_the_hunks_are_not_doubled() -> None:
    """Servers of old, and `unidiff`, tell them themselves."""
    assert text(told(diff=f"--- a/a.c\n+++ b/a.c\n{HUNK}")) == text(told())


def test_new_deleted_renamed_and_another_mode() -> None:
    assert "new file mode 100755\n--- /dev/null\n+++ b/a.c\n" in text(told(new_file=True, b_mode="100755"))
    assert "deleted file mode 100644\n--- a/a.c\n+++ /dev/null\n" in text(told(deleted_file=True, b_mode="0"))
    assert "rename from a.c\nrename to b.c\n--- a/a.c\n+++ b/b.c\n" in text(
        told(renamed_file=True, new_path="b.c")
    )
    assert "old mode 100644\nnew mode 100755\n" in text(told(b_mode="100755", diff=""))


def test_it_does_not_depend_on_the_order_of_files() -> None:
    """R001-033"""
    files = [told(new_path=name, old_path=name) for name in ("b", "a", "c/d", "ä")]
    assert text(*files) == text(*reversed(files))


def test_a_path_cannot_pass_for_a_line() -> None:
    odd = 'x\n+++ b/other\t"\\'
    assert (
        text(told(new_path=odd, old_path=odd)).split("\n")[0]
        == r'diff --git "a/x\n+++ b/other\t\"\\" "b/x\n+++ b/other\t\"\\"'
    )


@pytest.mark.parametrize("flag", ["too_large", "collapsed"])
def test_content_that_is_left_out_is_told(flag: str) -> None:
    files = [file_diff(told()), file_diff(told(**{flag: True, "diff": ""}))]
    assert gap(files, None) == f"diff_incomplete:{flag}:1"


def test_generated_files_count_when_they_are_empty() -> None:
    assert gap([file_diff(told(generated_file=True))], None) is None
    assert gap([file_diff(told(generated_file=True, diff=""))], None) == "diff_incomplete:generated_file:1"


def test_a_list_that_was_cut_off_is_known_by_the_figures() -> None:
    assert gap([file_diff(told())], (1, 1)) is None
    assert gap([file_diff(told())], (1, 4)) == "diff_incomplete:lines:3"
    assert gap([file_diff(told(renamed_file=True))], (100, 100)) is None
    assert gap([], (0, 0)) is None


@pytest.mark.parametrize("odd", [{"diff": None}, {"diff": 5}, {"old_path": None, "new_path": ""}])
def test_a_file_that_is_none(odd: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        file_diff(told(**odd))
