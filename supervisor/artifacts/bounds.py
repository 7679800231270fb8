"""What a store takes: which keys, and how large. The same on every backend. Pure."""

from collections.abc import Iterable

from supervisor.artifacts import MAX_FILE_SIZE
from supervisor.artifacts.errors import InvalidKey
from supervisor.artifacts.key import allowed, check_key, check_prefix


class Bounds:
    """Without `allowed_prefixes` every key is; with an empty list of them, none."""

    def __init__(
        self, *, allowed_prefixes: Iterable[str] | None = None, max_file_size: int = MAX_FILE_SIZE
    ) -> None:
        self._prefixes = None if allowed_prefixes is None else [check_prefix(one) for one in allowed_prefixes]
        self.max_file_size = max_file_size

    def names(self, key: str) -> tuple[str, ...]:
        names = check_key(key)
        if self._prefixes is not None and not allowed(names, self._prefixes):
            raise InvalidKey(key=key, what="is outside the allowed prefixes")
        return names

    def allow(self, key: str) -> bool:
        """Is it one of ours to show? Never raises: a listing may hold what others left there."""
        try:
            self.names(key)
        except InvalidKey:
            return False
        return True
