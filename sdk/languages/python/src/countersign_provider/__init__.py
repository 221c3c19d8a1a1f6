"""Write a Countersign provider: a class with one method that has a CSR signed.

    from dataclasses import dataclass
    from countersign_provider import Certificate, SignRequest, serve, setting

    @dataclass(kw_only=True)
    class Settings:
        address: str = setting("where the CA is, host:port")

    class Acme:
        def __init__(self, settings: Settings): ...

        async def sign(self, request: SignRequest) -> Certificate: ...

    serve("acme", "1.0.0", Settings, Acme)

Further abilities are further methods, see Authority. An error is one of the exceptions of
this module: what it means decides what the agent does next.
"""

from .definition import Authority
from .errors import (
    Aborted,
    Denied,
    Internal,
    Invalid,
    NotConfigured,
    Pending,
    ProviderError,
    RateLimited,
    RetryAfter,
    Unauthenticated,
    Unavailable,
    clean_text,
)
from .host import serve
from .http import http_error
from .messages import Certificate, JwtRequest, RenewalWindow, SignRequest, Token, TokenRequest
from .settings import setting
from .values import File, Url

__all__ = [
    "Aborted", "Authority", "Certificate", "Denied", "File", "Internal", "Invalid", "JwtRequest", "NotConfigured",
    "Pending", "ProviderError", "RateLimited", "RenewalWindow", "RetryAfter", "SignRequest", "Token",
    "TokenRequest", "Unauthenticated", "Unavailable", "Url", "clean_text", "http_error",
    "serve", "setting",
]
