"""Which variables of a replica's environment are its own: the database's, the artifacts', those of tokens.

A definition or a repository may name a variable that its commands take over, and must not get these.
"""

import re
from typing import Final

HARMLESS_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
TOKENS: Final = "TENURE_SCM_"
"""Names that begin so are for tokens of repositories, which repositories do name."""
_OWN: Final = re.compile("TENURE_|ENGRAM_|OM_|PG|POSTGRES|AWS_|REDIS", re.IGNORECASE)


def is_own(name: str) -> bool:
    return _OWN.match(name) is not None
