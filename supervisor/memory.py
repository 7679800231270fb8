"""What this process has ever seen of leadership; passed to the next election so that the epoch only grows."""

from dataclasses import dataclass


@dataclass(slots=True)
class Memory:
    epoch: int = 0
    system_identifier: int | None = None
    timeline: int | None = None
    changes: int = 0

    def learn(self, epoch: int, system_identifier: int, timeline: int) -> None:
        """Remember the greatest; timelines are compared within one system only."""
        if system_identifier != self.system_identifier:
            self.system_identifier, self.timeline = system_identifier, timeline
        else:
            self.timeline = max(self.timeline or 0, timeline)
        if epoch > self.epoch:
            self.epoch = epoch
            self.changes += 1
