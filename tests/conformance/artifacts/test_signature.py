"""Signatures against the examples that the protocol's own documentation works out."""

import hashlib
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from supervisor.artifacts.signature import NO_BODY, Credentials, encode_path, encode_query, sign

WHO = Credentials(SecretStr("AKIAIOSFODNN7EXAMPLE"), SecretStr("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))
AT = datetime(2013, 5, 24, tzinfo=UTC)
HOST = {"host": "examplebucket.s3.amazonaws.com"}
WELCOME = hashlib.sha256(b"Welcome to Amazon S3.").hexdigest()


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body", "signature"),
    [
        ("GET", "/test.txt", [], {"range": "bytes=0-9"}, NO_BODY,
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("PUT", "/test$file.text", [],
         {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}, WELCOME,
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
        ("GET", "/", [("lifecycle", "")], {}, NO_BODY,
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("GET", "/", [("prefix", "J"), ("max-keys", "2")], {}, NO_BODY,
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)  # fmt: skip
def test_known_signatures(
    method: str, path: str, query: list[tuple[str, str]], headers: dict[str, str], body: str, signature: str
) -> None:
    signed = sign(
        WHO, "us-east-1", AT, method, encode_path(path), encode_query(query), {**HOST, **headers}, body
    )
    assert signed["authorization"].endswith(f"Signature={signature}")


def test_a_session_has_a_token_that_is_signed() -> None:
    who = Credentials(WHO.access_key, WHO.secret_key, SecretStr("session"))
    signed = sign(who, "eu-1", AT, "GET", "/", "", HOST, NO_BODY)
    assert signed["x-amz-security-token"] == "session"
    assert "x-amz-security-token" in signed["authorization"]


def test_nothing_of_a_secret_is_shown() -> None:
    """R001-088, S17"""
    assert "wJalr" not in repr(WHO)
    assert "AKIA" not in repr(WHO)
    assert "wJalr" not in str(sign(WHO, "us-east-1", AT, "GET", "/", "", HOST, NO_BODY))
