"""From the settings to a store: the one place that knows every backend."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from supervisor.artifacts import Artifacts
from supervisor.artifacts.file import FileArtifacts
from supervisor.artifacts.local import LocalArtifacts
from supervisor.artifacts.settings import ArtifactSettings, Backend
from supervisor.artifacts.signature import Credentials
from supervisor.errors import BadSettings

if TYPE_CHECKING:
    from supervisor.artifacts.s3 import Target


def open_artifacts(settings: ArtifactSettings, state_dir: Path, backend: Backend | None = None) -> Artifacts:
    """The store of the chosen backend; without a root of its own, a local one is in the state directory."""
    backend = backend or settings.backend
    if complaints := settings.complaints(backend):
        raise BadSettings(what="; ".join(complaints))
    options: dict[str, Any] = {
        "allowed_prefixes": settings.allowed_prefixes,
        "max_file_size": settings.max_file_size,
        "quota_bytes": settings.quota_bytes,
        "former_places": settings.former_places or (),
    }
    match backend:
        case "local":
            state = state_dir.absolute()
            root = (settings.root or state / "artifacts").absolute()
            return LocalArtifacts(root, private=root.is_relative_to(state), **options)
        case "file":
            return FileArtifacts(settings.uri or "", **options)
        case "object":
            from supervisor.artifacts.object import ObjectArtifacts  # noqa: PLC0415  an HTTP client

            return ObjectArtifacts(target(settings), base=settings.base, **options)
        case _:
            assert_never(backend)


def chosen_artifacts(settings: ArtifactSettings, state_dir: Path) -> Artifacts | None:
    """The store of a replica; None = the operator has chosen none, and logs stay in the database."""
    if settings.backend == "local" and settings.root is None:
        return None
    return open_artifacts(settings, state_dir)


def target(settings: ArtifactSettings) -> "Target":
    """Complaints come first: here all is set."""
    from supervisor.artifacts.s3 import Target  # noqa: PLC0415  an HTTP client

    assert settings.endpoint  # noqa: S101
    assert settings.bucket  # noqa: S101
    assert settings.access_key  # noqa: S101
    assert settings.secret_key  # noqa: S101
    return Target(
        endpoint=settings.endpoint,
        bucket=settings.bucket,
        credentials=Credentials(settings.access_key, settings.secret_key, settings.session_token),
        region=settings.region,
        addressing=settings.addressing,
        owner=settings.bucket_owner,
        encryption=settings.encryption,
        kms_key_id=settings.kms_key_id,
        ca_file=settings.ca_file,
    )
