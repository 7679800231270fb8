"""A library's regular files in the order of their whole relative paths, in batches that can be resumed.

The order is that of code points of the whole path: in a directory, a file stands at its name and a
directory at its name + `/`, because everything beneath it begins so. Hence every batch covers one range
(after, upto] of the library's paths: what the database knows in that range and the batch names neither as
found nor under a fault is not there any more. The last batch is `final` and covers everything behind
`after`.

`upto` is a path, or a directory's path with its `/` where the batch ends before that directory. Either is a
valid `after` of a later walk, which then lists no directory that lies wholly before it.

Links are never followed, special files and the trash at the root are skipped, mount points are entered. A
directory that is its own ancestor (bind mounts), lies too deep or has too long a path is a fault and is not
entered. A listing is held for each level of the directory at hand and for a few directories ahead, never
for the tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from actors.dedup.ahead import Ahead
from actors.dedup.confine import Beneath
from actors.dedup.listing import Facts, Fault, Listing, Row, steps

__all__ = ["Batch", "Fault", "batches"]

DEEPEST = 10_000
LONGEST_BYTES = 32_768
NAME_BYTES = 3 * 255  # as text: each byte of a name may be escaped
THREADS = 4


@dataclass(slots=True)
class Batch:
    """Parallel columns of what was found in (after, upto], or behind `after` where `final`."""

    after: str
    upto: str = ""
    final: bool = False
    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    mtimes_ns: list[int] = field(default_factory=list)
    inodes: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    hashes: list[bytes | None] | None = None  # of contents, where they were read at once
    faults: list[Fault] = field(default_factory=list)
    directories: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.upto = self.upto or self.after

    def full(self, size: int) -> bool:
        """Directories and faults count too: a walk that finds no files moves on all the same."""
        return max(len(self.paths), len(self.faults), self.directories) >= size

    def take(self, rows: list[Row]) -> None:
        if rows:
            paths, sizes, mtimes_ns, inodes, devices = zip(*rows, strict=True)
            self.paths += paths
            self.sizes += sizes
            self.mtimes_ns += mtimes_ns
            self.inodes += inodes
            self.devices += devices
            self.upto = paths[-1]


def batches(
    root: Beneath,
    after: str = "",
    size: int = 5000,
    threads: int = THREADS,
    *,
    deepest: int = DEEPEST,
    longest_bytes: int = LONGEST_BYTES,
) -> Iterator[Batch]:
    """At least one batch; each has about `size` entries. `root` stays open until the iterator is closed."""
    batch = Batch(after)
    with Ahead(root, after, threads) as ahead:
        for step in _walk(ahead, deepest, longest_bytes):
            match step:
                case Facts():
                    facts = _shorter(step, longest_bytes)
                    while len(facts.found) > size - len(batch.paths):
                        facts = _fill(batch, facts, size - len(batch.paths))
                        yield batch
                        batch = Batch(batch.upto)
                    _fill(batch, facts, len(facts.found))
                    batch.upto = facts.upto
                case Fault():
                    batch.faults.append(step)
                    continue  # what lies beneath it is in this batch's range only when something after it is
                case Listing():
                    if step.prefix >= after:
                        batch.directories += 1
                        batch.skipped += step.skipped
                    continue
                case str():  # what comes next lies beneath this directory, and all before it is covered
                    batch.upto = step
            if batch.full(size):
                yield batch
                batch = Batch(batch.upto)
    batch.final = True
    yield batch


def _fill(batch: Batch, facts: Facts, count: int) -> Facts:
    """Put the first `count` files and their share of the rest into the batch; what is left comes back."""
    batch.take(facts.found[:count])
    left = Facts(facts.upto, facts.found[count:])
    for fault in facts.faults:
        (left if left.found and fault.path > batch.upto else batch).faults.append(fault)
    batch.skipped += facts.skipped
    return left


def _shorter(facts: Facts, longest_bytes: int) -> Facts:
    """Without the paths that are too long, each of which is a fault."""
    if 4 * len(facts.upto) + NAME_BYTES <= longest_bytes:
        return facts
    short = Facts(facts.upto, faults=facts.faults, skipped=facts.skipped)
    for row in facts.found:
        if len(row[0].encode()) <= longest_bytes:
            short.found.append(row)
        else:
            short.faults.append(Fault(row[0], "NAME_TOO_LONG"))
    return short


class Level:
    """A directory at work."""

    def __init__(self, ahead: Ahead, listing: Listing) -> None:
        self.identity = listing.identity
        self._ahead = ahead
        self._listing = listing
        self._entered = 0
        self._steps = steps(ahead.root, listing)
        self._look_ahead()

    def next(self) -> Facts | str | None:
        step = next(self._steps, None)
        if isinstance(step, str):
            self._entered += 1
            self._look_ahead()
        return step

    def _look_ahead(self) -> None:
        coming = self._listing.directories[self._entered : self._entered + self._ahead.threads]
        self._ahead.announce([self._listing.prefix + name for name in coming])


def _walk(ahead: Ahead, deepest: int, longest_bytes: int) -> Iterator[Facts | Fault | Listing | str]:
    """Depth first with a stack of our own; a directory is announced by its prefix, then listed or a fault."""
    stack: list[Level] = []
    lineage: set[tuple[int, int]] = set()
    prefix = ""
    while True:
        code = "TOO_DEEP" if len(stack) > deepest else None
        if len(prefix) * 4 > longest_bytes and len(prefix.encode()) > longest_bytes:
            code = "NAME_TOO_LONG"
        listing = Listing(prefix, code=code) if code else ahead.take(prefix)
        if listing.code is None and listing.identity in lineage:
            listing.code = "DIRECTORY_LOOP"
        if listing.code is not None:
            yield Fault(prefix[:-1], listing.code)
        else:
            yield listing
            stack.append(Level(ahead, listing))
            lineage.add(listing.identity)
        while stack:
            step = stack[-1].next()
            if step is None:
                lineage.discard(stack.pop().identity)
                continue
            yield step
            if isinstance(step, str):
                prefix = step
                break
        else:
            return
