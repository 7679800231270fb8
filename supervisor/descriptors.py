"""The limit on open files (RLIMIT_NOFILE): raised for a replica, given back to the programs that it runs.

The soft limit is often 1,024 for the sake of programs that still use select(2). A replica does not, and holds
a descriptor for each connection. What it starts (commands, svn, git) gets the limit that it was started with.
"""

import resource
from contextlib import suppress
from functools import cache


@cache
def raise_limit() -> int:
    """Raise the soft limit to the hard one, once; return the soft limit that was found."""
    found, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a sandbox may forbid it; the server counts what it has
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return found


def restore_limit(found: int) -> None:
    """Set the soft limit back to what `raise_limit` returned: before a child becomes another program."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (found, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def open_file_limit() -> int:
    """Return how many descriptors this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
