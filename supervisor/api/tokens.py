"""The tokens themselves: `tnr_<id>_<secret>`, of which the database has the id and a hash of the secret.

The secret has 256 random bits, so no hash however fast could be searched through; argon2id with the smallest
parameters that are recommended for passwords is what a reader of the table would have to work against.
"""

import re
import secrets
from dataclasses import dataclass
from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

_FORM: Final = re.compile(rb"tnr_([1-9][0-9]{0,18})_([A-Za-z0-9_-]{43})")
_LARGEST_ID: Final = 2**63 - 1
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


@dataclass(frozen=True, slots=True)
class Token:
    id: int
    secret: bytes

    def __repr__(self) -> str:
        return f"Token({self.id})"

    @classmethod
    def parse(cls, text: bytes) -> "Token | None":
        found = _FORM.fullmatch(text)
        if found is None or int(found[1]) > _LARGEST_ID:
            return None
        return cls(int(found[1]), found[2])

    def fits(self, encoded: str) -> bool:
        """Costs some 40 ms of one core, whatever the answer."""
        try:
            return _HASHER.verify(encoded, self.secret)
        except (VerificationError, InvalidHashError):
            return False


def new_secret() -> tuple[str, str]:
    """A secret, and the hash of it."""
    secret = secrets.token_urlsafe(32)
    return secret, _HASHER.hash(secret)


def shown(token_id: int, secret: str) -> str:
    """As its owner gets it, once."""
    return f"tnr_{token_id}_{secret}"


@cache
def decoy() -> str:
    """A hash that nothing fits: an id that is not there costs as much as one that is."""
    return new_secret()[1]
