"""What this process has ever seen of leadership; passed to the next election so that the epoch only grows."""

from dataclasses import dataclass

from supervisor.clock import boottime


@dataclass(slots=True)
class Memory:
    epoch: int = 0
    system_identifier: int | None = None
    timeline: int | None = None
    changes: int = 0
    moved: bool = False
    """Whether this process has itself seen a server or a timeline give way to another."""
    met_at: float | None = None
    """Since when, by its own clock, it has known this server on this timeline."""

    def left_behind(self, system_identifier: int, timeline: int) -> bool:
        """Is this server one that a failover, which was seen here, has left behind?"""
        return system_identifier == self.system_identifier and timeline < (self.timeline or 0)

    def learn(self, epoch: int, system_identifier: int, timeline: int) -> None:
        """Remember the greatest; timelines are compared within one system only."""
        if system_identifier != self.system_identifier or timeline > (self.timeline or 0):
            self.moved = self.timeline is not None
            self.met_at = boottime()
        if system_identifier != self.system_identifier:
            self.system_identifier, self.timeline = system_identifier, timeline
        else:
            self.timeline = max(self.timeline or 0, timeline)
        if epoch > self.epoch:
            self.epoch = epoch
            self.changes += 1
