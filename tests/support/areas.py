"""Print the test files of areas: `make test AREA="scm media"` runs them.

An area is a folder of tests or a word in the name of a test file. `integration/scm/test_api.py` belongs to
scm and to api, `unit/test_scm_uri.py` to scm and to uri.
"""

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def areas() -> dict[str, set[Path]]:
    """Return the test files of each area."""
    found: dict[str, set[Path]] = defaultdict(set)
    for file in (ROOT / "tests").rglob("test_*.py"):
        *folders, name = file.relative_to(ROOT / "tests").with_suffix("").parts
        words = name.removeprefix("test_").split("_")
        for area in (*folders, *words):
            found[area].add(file.relative_to(ROOT))
    return found


def main(chosen: list[str]) -> None:
    known = areas()
    if unknown := [area for area in chosen if area not in known]:
        rooms = ("actors/*/", "supervisor/*/", "tests/**/")
        folders = {folder.name for room in rooms for folder in ROOT.glob(room)}
        sys.exit(
            f"no tests of {', '.join(unknown)}; areas are {', '.join(sorted(folders & known.keys()))}, "
            "and each word in the name of a test file"
        )
    sys.stdout.write("\n".join(sorted({str(file) for area in chosen for file in known[area]})) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
