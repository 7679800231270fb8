"""Tenure: a leader-elected supervisor for leased background work on PostgreSQL.

This is the surface for authors of actors; everything else is the engine's own.
"""

from supervisor.actor import Actor, Claim, Tools
from supervisor.lease import Lease
from supervisor.outcome import Cancel, Done, Outcome, Retry, Snooze

__all__ = ["Actor", "Cancel", "Claim", "Done", "Lease", "Outcome", "Retry", "Snooze", "Tools"]
