"""The one text of a payload that its hash is made of: sorted keys, no spaces, UTF-8 as it is."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(payload: Mapping[str, Any]) -> str:
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def hash_of(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(payload).encode()).hexdigest()
