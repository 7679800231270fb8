"""Which store the settings choose, and what they refuse."""

from pathlib import Path

import pytest

from supervisor.artifacts import MAX_FILE_SIZE, ArtifactExists, InvalidKey, QuotaExceeded, TooLarge
from supervisor.artifacts.backends import chosen_artifacts, open_artifacts
from supervisor.artifacts.errors import BadAddress
from supervisor.artifacts.file import FileArtifacts
from supervisor.artifacts.local import LocalArtifacts
from supervisor.artifacts.object import ObjectArtifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.errors import BadSettings

S3 = {
    "ENGRAM_S3_ENDPOINT": "https://minio.example.com",
    "ENGRAM_S3_BUCKET": "artifacts",
    "ENGRAM_S3_ACCESS_KEY": "access-canary",
    "ENGRAM_S3_SECRET_KEY": "secret-canary",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def opened(place: Path) -> object:
    return open_artifacts(load_artifact_settings(), place / ".tenure")


def test_each_backend_is_chosen_by_the_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-069, R001-072, R001-103: [artifacts] backend, root; local when nothing is said"""
    assert isinstance(opened(place), LocalArtifacts)
    for backend, kind in (("local", LocalArtifacts), ("file", FileArtifacts), ("object", ObjectArtifacts)):
        use(monkeypatch, **S3)
        (place / "tenure.toml").write_text(
            f'[artifacts]\nbackend = "{backend}"\nroot = "there"\nuri = "file://{place}"\n'
        )
        store = opened(place)
        assert type(store) is kind
        if isinstance(store, LocalArtifacts):
            assert store._tree.root == place / "there"


def test_the_environment_overrides_the_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-103: ENGRAM_ARTIFACTS_BACKEND, and TENURE_ARTIFACTS_BACKEND over both"""
    (place / "tenure.toml").write_text('[artifacts]\nbackend = "object"\n')
    use(monkeypatch, ENGRAM_ARTIFACTS_BACKEND="local")
    assert load_artifact_settings().backend == "local"
    use(monkeypatch, TENURE_ARTIFACTS_BACKEND="file")
    assert load_artifact_settings().backend == "file"
    use(monkeypatch, TENURE_ARTIFACTS_BACKEND="tape")
    with pytest.raises(BadSettings, match="TENURE_ARTIFACTS_BACKEND"):
        load_artifact_settings()


def test_the_target_comes_from_the_environment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-087, R001-088: region and prefix from the file or the environment, keys from the environment"""
    use(monkeypatch, **S3, PROJECT_KEY="proj_a", ENGRAM_ARTIFACTS_BACKEND="object")
    (place / "tenure.toml").write_text('[artifacts]\nprefix = "engram/"\nregion = "eu-central-1"\n')
    settings = load_artifact_settings()
    store = open_artifacts(settings, place)
    assert isinstance(store, ObjectArtifacts)
    target = store._bucket.target
    assert (target.endpoint, target.bucket, target.region) == (
        S3["ENGRAM_S3_ENDPOINT"],
        "artifacts",
        "eu-central-1",
    )
    assert target.credentials.secret_key.get_secret_value() == "secret-canary"
    assert store._base == "engram/proj_a/"
    for shown in (repr(settings), str(settings), repr(target), store.where, repr(vars(store))):
        assert "canary" not in shown
    use(monkeypatch, ENGRAM_S3_REGION="us-west-2", ENGRAM_S3_PREFIX="other/")
    assert (load_artifact_settings().region, load_artifact_settings().base) == ("us-west-2", "other/proj_a")


@pytest.mark.parametrize(
    "line",
    [
        'access_key = "canary"', 'secret_key = "canary"', 's3_secret_key = "canary"',
        'session_token = "canary"', 'SECRET_KEY = "canary"', '[artifacts.s3]\nsecret_key = "canary"',
    ],
)  # fmt: skip
def test_credentials_in_the_file_are_refused(place: Path, line: str) -> None:
    """R001-089: whatever the backend, and without showing them"""
    (place / "tenure.toml").write_text(f"[artifacts]\n{line}\n")
    with pytest.raises(BadSettings, match="environment") as caught:
        load_artifact_settings()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("missing", S3)
def test_what_an_object_store_needs_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """R001-088"""
    use(monkeypatch, **{name: value for name, value in S3.items() if name != missing})
    use(monkeypatch, ENGRAM_ARTIFACTS_BACKEND="object")
    with pytest.raises(BadSettings, match=missing) as caught:
        opened(place)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "testing", "accepted"),
    [
        ("https://minio.example.com", "", True),
        ("https://10.0.0.1:9000", "", True),
        ("http://minio.example.com", "", False),
        ("http://minio.example.com", "1", False),
        ("http://127.0.0.1:9000", "", False),
        ("http://127.0.0.1:9000", "1", True),
        ("http://localhost:9000", "1", True),
        ("http://[::1]:9000", "1", True),
        ("http://localhost.example.com", "1", False),
        ("http://127.0.0.1.example.com", "1", False),
        ("http://127.0.0.1@example.com", "1", False),
        ("https://user:canary@minio.example.com", "", False),
        ("ftp://minio.example.com", "1", False),
        ("minio.example.com", "", False),
        ("https://", "", False),
        ("https://minio.example.com/?x=canary", "", False),
    ],
)
def test_only_https(
    place: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, testing: str, accepted: bool
) -> None:
    """R001-090, C-36, S18: http on loopback only, and only with ENGRAM_TESTING=1"""
    use(monkeypatch, **S3, ENGRAM_ARTIFACTS_BACKEND="object", ENGRAM_TESTING=testing)
    use(monkeypatch, ENGRAM_S3_ENDPOINT=endpoint)
    if accepted:
        assert isinstance(opened(place), ObjectArtifacts)
        return
    with pytest.raises(BadSettings, match="ENGRAM_S3_ENDPOINT") as caught:
        opened(place)
    assert "canary" not in str(caught.value)


async def test_bounds_by_the_settings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-072, R001-075, R001-114, R001-119: prefixes, size and quota reach the store"""
    assert load_artifact_settings().max_file_size == MAX_FILE_SIZE == 10 * 1024 * 1024
    (place / "tenure.toml").write_text(
        '[artifacts]\nallowed_prefixes = ["scm/", "attachments/"]\nmax_file_size = 10\nquota_bytes = 15\n'
    )
    store = open_artifacts(load_artifact_settings(), place)
    await store.put("scm/1", b"x" * 10)
    with pytest.raises(ArtifactExists):
        await store.put("scm/1", b"x")
    with pytest.raises(TooLarge):
        await store.put("scm/2", b"x" * 11)
    with pytest.raises(QuotaExceeded):
        await store.put("scm/2", b"x" * 6)
    with pytest.raises(InvalidKey):
        await store.put("exports/1", b"x")
    use(monkeypatch, TENURE_ARTIFACTS_ALLOWED_PREFIXES="exports/, tmp")
    store = open_artifacts(load_artifact_settings(), place)
    await store.put("exports/1", b"x")
    (place / "tenure.toml").write_text("[artifacts]\nallowed_prefixes = []\n")
    monkeypatch.delenv("TENURE_ARTIFACTS_ALLOWED_PREFIXES")
    with pytest.raises(InvalidKey):
        await open_artifacts(load_artifact_settings(), place).put("scm/9", b"x")


def test_settings_that_cannot_be_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, **S3)
    for name, value, match in (
        ("TENURE_ARTIFACTS_MAX_FILE_SIZE", "0", "greater"),
        ("TENURE_ARTIFACTS_QUOTA_BYTES", "-1", "greater"),
        ("TENURE_ARTIFACTS_S3_ENCRYPTION", "rot13", "AES256"),
        ("PROJECT_KEY", "../x", "project key"),
        ("ENGRAM_S3_BUCKET", "a/b", "bucket"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv("ENGRAM_ARTIFACTS_BACKEND", "object")
            patched.setenv(name, value)
            with pytest.raises(BadSettings, match=match):
                opened(place)
    use(monkeypatch, ENGRAM_ARTIFACTS_BACKEND="file")
    with pytest.raises(BadSettings, match="TENURE_ARTIFACTS_URI"):
        opened(place)
    use(monkeypatch, TENURE_ARTIFACTS_URI="/mnt/nfs")
    with pytest.raises(BadAddress):
        opened(place)


def test_a_replica_has_a_store_when_one_was_chosen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_artifacts(load_artifact_settings(), place) is None
    with monkeypatch.context() as patched:
        patched.setenv("TENURE_ARTIFACTS_DIR", "there")
        assert isinstance(chosen_artifacts(load_artifact_settings(), place), LocalArtifacts)
    use(monkeypatch, **S3, ENGRAM_ARTIFACTS_BACKEND="object")
    assert isinstance(chosen_artifacts(load_artifact_settings(), place), ObjectArtifacts)


def test_names_of_other_programs_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, REGION="x", PREFIX="x", ROOT="x", BACKEND="object", TESTING="1", SECRET_KEY="x", URI="x")
    settings = load_artifact_settings()
    assert (settings.region, settings.prefix, settings.backend, settings.testing) == (
        "us-east-1",
        "",
        "local",
        False,
    )
    assert (settings.root, settings.uri, settings.secret_key) == (None, None, None)
