"""Langfuse's clients send OTLP to their own path, with a pair of keys instead of a bearer token."""

from __future__ import annotations

import base64
import binascii

LANGFUSE_TRACES = "/api/public/otel/v1/traces"


def bearer_of(authorization: str) -> str:
    """Return Basic credentials as a bearer token: the password is the token, and the user name is ignored.

    Langfuse's public key is the user, its secret key the password. Any other header is returned as it is.
    """
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        password = ""
    return f"Bearer {password}"
