"""AWS Signature Version 4: who asks, proven over method, path, query, headers and the body's SHA-256. Pure.

The secret goes in and a signature comes out; neither appears in a message.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from pydantic import SecretStr

ALGORITHM: Final = "AWS4-HMAC-SHA256"
NO_BODY: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: SecretStr
    secret_key: SecretStr
    session_token: SecretStr | None = None


def encode_path(path: str) -> str:
    """As S3 wants it, once; everything but the unreserved characters and the slash is escaped."""
    return quote(path, safe="/-._~")


def encode_query(query: Sequence[tuple[str, str]]) -> str:
    return "&".join(
        f"{quote(name, safe='-._~')}={quote(value, safe='-._~')}" for name, value in sorted(query)
    )


def sign(
    credentials: Credentials,
    region: str,
    at: datetime,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body_sha256: str,
) -> dict[str, str]:
    """The headers (lower-case names) with all that the signature needs. Path and query come encoded."""
    moment = f"{at:%Y%m%dT%H%M%SZ}"
    signed = {**headers, "x-amz-content-sha256": body_sha256, "x-amz-date": moment}
    if credentials.session_token is not None:
        signed["x-amz-security-token"] = credentials.session_token.get_secret_value()
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{' '.join(signed[name].split())}\n" for name in sorted(signed))
    request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{body_sha256}"
    scope = f"{at:%Y%m%d}/{region}/s3/aws4_request"
    text = "\n".join((ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = hmac.new(_key(credentials, region, at), text.encode(), hashlib.sha256).hexdigest()
    who = f"{credentials.access_key.get_secret_value()}/{scope}"
    signed["authorization"] = f"{ALGORITHM} Credential={who}, SignedHeaders={names}, Signature={signature}"
    return signed


def _key(credentials: Credentials, region: str, at: datetime) -> bytes:
    key = b"AWS4" + credentials.secret_key.get_secret_value().encode()
    for step in (f"{at:%Y%m%d}", region, "s3", "aws4_request"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key
