"""Who a replica is: a name that everybody sees, and a secret with which it alone acts under that name."""

import socket
import uuid
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """Host and boot: neither the name nor the secret is ever used again."""

    worker_id: str = field(default_factory=lambda: f"{socket.gethostname()[:63]}-{uuid.uuid4()}")
    secret: uuid.UUID = field(default_factory=uuid.uuid4, repr=False)
