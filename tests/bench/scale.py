"""How much of everything: `full` is for a quiet machine and takes its time, `tiny` shows that it runs."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Scale:
    rows: int
    runs: int
    peer_runs: int
    """Of those who are slow."""
    enqueued: int
    rate: float
    latency_seconds: float
    definitions: int
    history: tuple[int, ...]
    moved: int
    """Runs whose claim and assignment are timed on top of each history."""
    old_snapshot_seconds: float
    replicas: int
    running: int
    beats: int
    large_files: int
    large_bytes: int
    photos: int
    photo_bytes: int
    small_files: int
    pictures: int
    picture_width: int


SCALES: Final = {
    "tiny": Scale(
        rows=200,
        runs=100,
        peer_runs=20,
        enqueued=100,
        rate=50,
        latency_seconds=0.4,
        definitions=10,
        history=(0, 500),
        moved=100,
        old_snapshot_seconds=0.3,
        replicas=3,
        running=30,
        beats=2,
        large_files=6,
        large_bytes=200_000,
        photos=10,
        photo_bytes=20_000,
        small_files=200,
        pictures=3,
        picture_width=400,
    ),
    "small": Scale(
        rows=30_000,
        runs=20_000,
        peer_runs=1_000,
        enqueued=20_000,
        rate=50,
        latency_seconds=10,
        definitions=1_000,
        history=(0, 100_000),
        moved=5_000,
        old_snapshot_seconds=20,
        replicas=100,
        running=10_000,
        beats=10,
        large_files=48,
        large_bytes=64 << 20,
        photos=1_000,
        photo_bytes=2_500_000,
        small_files=100_000,
        pictures=120,
        picture_width=4_032,
    ),
    "full": Scale(
        rows=200_000,
        runs=100_000,
        peer_runs=5_000,
        enqueued=200_000,
        rate=50,
        latency_seconds=60,
        definitions=1_000,
        history=(0, 100_000, 1_000_000, 10_000_000),
        moved=20_000,
        old_snapshot_seconds=600,
        replicas=100,
        running=10_000,
        beats=30,
        large_files=48,
        large_bytes=256 << 20,
        photos=3_000,
        photo_bytes=3_000_000,
        small_files=100_000,
        pictures=600,
        picture_width=4_032,
    ),
}
