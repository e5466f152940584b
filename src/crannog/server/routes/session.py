"""Signing in and out of the pages, and what the one who is signed in may do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.server.openapi import gives, takes_json
from crannog.server.requests import BodyLimit, call_of, document, form_of
from crannog.server.responses import answer
from crannog.server.scopes import NOBODY, Caller
from crannog.server.service import Service
from crannog.server.sessions import COOKIE, LASTS_S, check_same_origin, session_of
from crannog.version import VERSION

router = APIRouter(prefix="/api/v1", tags=["session"])


class SignIn(BaseModel):
    """What a person signs in with."""

    model_config = ConfigDict(extra="forbid")

    token: str


class SessionState(BaseModel):
    """Who the caller is. Scopes are as of a token: `level`, `level:catalog` or `level:catalog.schema`.

    The ports take spans over OTLP; they are null if the server takes none, and until one is signed in.
    """

    signed_in: bool
    needs_token: bool
    name: str
    scopes: list[str]
    version: str
    otlp_http_port: int | None
    otlp_grpc_port: int | None


_SIGN_IN: TypeAdapter[SignIn] = TypeAdapter(SignIn)
# Anybody may send it.
_LIMIT = BodyLimit(1 << 14)


def _state(service: Service, caller: Caller) -> dict[str, Any]:
    ports = (service.otlp_ports if caller.scopes else None) or (None, None)
    return {
        "signed_in": bool(caller.scopes),
        "needs_token": service.tokens.required or not service.loopback,
        "name": caller.name,
        "scopes": [str(scope) for scope in caller.scopes],
        "version": VERSION,
        "otlp_http_port": ports[0],
        "otlp_grpc_port": ports[1],
    }


@router.get("/session", responses=gives(SessionState))
async def session(request: Request) -> Response:
    """Tell who the caller is and what it may do; without a valid token or session that is nobody, and not an error."""
    call = call_of(request)
    return answer(_state(call.service, call.caller), headers={"Cache-Control": "no-store"})


@router.post("/session", responses=gives(SessionState), openapi_extra=takes_json(SignIn))
async def sign_in(request: Request) -> Response:
    """Sign in to the pages: set a cookie that stands for the token, for 12 hours or until the server restarts."""
    call = call_of(request)
    check_same_origin("POST", call.headers)
    form_of(request, ("json",))
    wanted: SignIn = await call.service.bodies.document(request, lambda data: document(data, _SIGN_IN), _LIMIT)
    session_id, caller = call.service.sessions.start(wanted.token.strip())
    call.caller = caller
    response = answer(_state(call.service, caller), headers={"Cache-Control": "no-store"})
    _set_cookie(request, response, session_id, LASTS_S)
    return response


@router.delete("/session", responses=gives(SessionState))
async def sign_out(request: Request) -> Response:
    """Sign out of the pages."""
    call = call_of(request)
    check_same_origin("DELETE", call.headers)
    call.service.sessions.end(session_of(call.headers))
    response = answer(_state(call.service, NOBODY), headers={"Cache-Control": "no-store"})
    _set_cookie(request, response, "", 0)
    return response


def _set_cookie(request: Request, response: Response, value: str, max_age_s: int) -> None:
    # Without a path the cookie goes to the folder of this route, under whatever prefix a proxy serves it.
    is_https = request.url.scheme == "https" or call_of(request).header(b"origin").lower().startswith("https://")
    response.set_cookie(COOKIE, value, max_age=max_age_s, path=None, secure=is_https, httponly=True, samesite="strict")
