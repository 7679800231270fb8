"""What is refused before a replica starts."""

from collections.abc import Sequence

from supervisor.config import Settings


def has_libraries(settings: Settings) -> bool:
    """Whether a replica sees the files at all."""
    return settings.libraries_dir is not None


def may_hold_maintenance(settings: Settings) -> bool:
    """A replica that only works refuses the login for checkpoints, and would fail every request for one."""
    return settings.lead


def complaints(settings: Settings) -> Sequence[str]:
    """Thumbnails are written under the state's directory and nowhere else, least of all beside originals."""
    found = []
    thumbs, state = (settings.thumbs_dir or settings.state_dir).resolve(), settings.state_dir.resolve()
    if not thumbs.is_relative_to(state):
        found.append(f"TENURE_THUMBS_DIR {thumbs} is not under TENURE_STATE_DIR {state}")
    if settings.libraries_dir is not None:
        libraries = settings.libraries_dir.resolve()
        if thumbs.is_relative_to(libraries) or libraries.is_relative_to(thumbs):
            found.append(f"thumbnails ({thumbs}) and libraries ({libraries}) must not lie in each other")
    return found
