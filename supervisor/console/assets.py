"""Static files, read once, under a path that names their content: a browser keeps them until they change."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

HERE: Final = Path(__file__).parent / "static"
KINDS: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Assets:
    files: Mapping[str, bytes]
    digest: str

    @classmethod
    def read(cls, directory: Path = HERE) -> "Assets":
        files = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in KINDS}
        whole = sha256(b"\0".join(name.encode() + b"\0" + content for name, content in files.items()))
        return cls(files, whole.hexdigest()[:16])

    def path(self, name: str) -> str:
        assert name in self.files, name  # noqa: S101  a template names what is there
        return f"/static/{self.digest}/{name}"

    def answer(self, digest: str, name: str) -> Response:
        """Asked for by another version's page, it is given and not kept."""
        if name not in self.files:
            raise HTTPException(404, "no such file")
        kept = {"Cache-Control": FOREVER} if digest == self.digest else {}
        return Response(self.files[name], media_type=KINDS[Path(name).suffix], headers=kept)
