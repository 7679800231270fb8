"""What can be wrong with an artifact. Every message begins with its code, which is also `code`."""

from typing import ClassVar

from supervisor.errors import TenureError


class ArtifactError(TenureError):
    """ARTIFACT_ERROR: {what}"""

    code: ClassVar[str] = "ARTIFACT_ERROR"


class InvalidKey(ArtifactError):
    """INVALID_KEY: {key!r} {what}"""

    code = "INVALID_KEY"
    hint = "a key is a relative path such as scm/1/svn/r100.diff"
    exit_code = 2


class BadAddress(ArtifactError):
    """BAD_ADDRESS: {address!r}: {what}"""

    code = "BAD_ADDRESS"
    hint = "such as file:///mnt/nfs/artifacts/proj_a, or file://fileserver/share/proj_a for a mounted share"
    exit_code = 2


class BadRange(ArtifactError):
    """BAD_RANGE: {key} has {size} bytes, asked for {length} from {start}"""

    code = "BAD_RANGE"
    exit_code = 2


class ArtifactMissing(ArtifactError):
    """NOT_FOUND: no artifact {key} in {place}"""

    code = "NOT_FOUND"
    exit_code = 5


class Elsewhere(ArtifactError):
    """ELSEWHERE: {uri} is not in the artifact store of this replica, {place}"""

    code = "ELSEWHERE"
    hint = (
        "a local store belongs to one host; after a move, TENURE_ARTIFACTS_FORMER_PLACES names the old store"
    )
    exit_code = 5


class ArtifactExists(ArtifactError):
    """EXISTS: there is an artifact {key} already"""

    code = "EXISTS"
    exit_code = 4


class ChecksumMismatch(ArtifactError):
    """CHECKSUM_MISMATCH: {key} has SHA-256 {found}, expected {expected}"""

    code = "CHECKSUM_MISMATCH"
    hint = "the content is not what was recorded; nothing was overwritten"


class SizeMismatch(ChecksumMismatch):
    """CHECKSUM_MISMATCH: {key} has {found} bytes, expected {expected}"""


class TooLarge(ArtifactError):
    """TOO_LARGE: {key} has more than {limit} bytes"""

    code = "TOO_LARGE"


class QuotaExceeded(ArtifactError):
    """QUOTA_EXCEEDED: no room for {key}: {what}"""

    code = "QUOTA_EXCEEDED"
    hint = "raise the quota, or let `tenure artifacts gc` find what nothing refers to"


class NoSpace(ArtifactError):
    """NO_SPACE: no space left for {key} in {place}"""

    code = "NO_SPACE"
    hint = "free space on that file system; nothing partial was left"


class AccessDenied(ArtifactError):
    """PERMISSION_DENIED: {path}: {what}"""

    code = "PERMISSION_DENIED"
    hint = "the user of this process must be able to read and write there"


class StoreFailed(ArtifactError):
    """IO_ERROR: {path}: {what}"""

    code = "IO_ERROR"
