"""Where contents are kept: artifacts under `media/`, by their hash and a name that is never used again.

The name at the end makes removal safe. Whoever uploads the same content after its row was removed puts it
under another key, so that the removal of the old artifact, however late it comes, takes nothing that is used.
"""

import re
import uuid
from typing import Final

from supervisor.artifacts import Artifacts
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.config import Settings

PREFIX: Final = "media/"
HASH: Final = re.compile(r"[0-9a-f]{64}")


def new_key(hash_: str) -> str:
    return f"{PREFIX}{hash_[:2]}/{hash_[2:4]}/{hash_}.{uuid.uuid4().hex[:16]}"


def open_shelf(settings: Settings) -> Artifacts:
    return open_artifacts(load_artifact_settings(), settings.state_dir)
