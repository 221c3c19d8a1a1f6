"""What an author gives to serve."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import settings
from .messages import Certificate, SignRequest

# The methods of an authority that are abilities, as the protocol numbers them.
_ABILITIES = {"sign": 1, "roots": 2, "watch_roots": 3, "exchange_token": 4, "renewal_info": 6, "revocations": 7,
              "sign_jwt": 8, "watch_jwt_keys": 8}
_NAMES_FROM_REQUEST = 5
_OTHERS = ("open", "close")
_NAME_MATCHES = {"exact": 1, "trust-domain": 2, "any": 3}


class Authority(Protocol):
    """A CA that was opened with its settings. Only sign is required; the others are

        async def roots(self) -> bytes                          the CA's roots now, PEM
        async def watch_roots(self) -> AsyncIterator[bytes]     the roots now, and each later set
        async def exchange_token(self, request: TokenRequest) -> Token
        async def renewal_info(self, certificate: bytes) -> RenewalWindow   of a leaf, PEM
        async def revocations(self) -> bytes                    the revocation lists that the CA publishes, PEM
        async def sign_jwt(self, request: JwtRequest) -> str    a JWT-SVID: a JWS in compact form
        async def watch_jwt_keys(self) -> AsyncIterator[bytes | str | dict]   the JWK set that verifies them, and each later one
        async def open(self) -> None                            after __init__, where that must wait
        async def close(self) -> None                           after the last call

    Each public method is an ability: serve refuses a class with any other, so start the name of a
    helper with _. sign_jwt and watch_jwt_keys need each other. Revocation lists are complete ones
    with nextUpdate, in PEM blocks X509 CRL, 3 MiB at most; blocks CERTIFICATE among them are
    intermediate CAs that signed one. Sign none for each call: every change goes to every workload.

    With names_from_request = True, sign certifies the names of the request, whatever the CSR says.

    What is known of the CA, the host's defaults that its operator may change:

        fixed_lifetime = True           the CA chooses how long certificates live
        name_match = "trust-domain"     it chooses the SPIFFE ID in the trust domain; "any": all names
        needs_token = True              it signs nothing without a token

    A method without async runs in a thread, and goes on there when its caller has gone away: end
    it within request.timeout. An async one is cancelled. Many calls run at the same time.
    """

    def sign(self, request: SignRequest) -> Certificate | Awaitable[Certificate]:
        """Has a request signed."""


@dataclass(frozen=True)
class Definition:
    """A provider: its name, its version, the class of its settings, and how it is opened."""

    name: str
    version: str
    settings: type
    open: Callable[[Any], Authority]
    schema: dict[str, Any]

    @property
    def abilities(self) -> list[int]:
        found = {number: None for method, number in _ABILITIES.items() if hasattr(self.open, method)}
        return [*found] + [_NAMES_FROM_REQUEST] * bool(getattr(self.open, "names_from_request", False))

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the CA, as the metadata have it."""
        return {
            "fixed_lifetime": bool(getattr(self.open, "fixed_lifetime", False)),
            "name_match": _NAME_MATCHES[getattr(self.open, "name_match", "exact")],
            "needs_token": bool(getattr(self.open, "needs_token", False)),
        }


def define(name: str, version: str, settings_class: type, authority: Callable[[Any], Authority]) -> Definition:
    """Raises TypeError for a class that no settings or no authority can be made of."""
    if not hasattr(authority, "sign"):
        raise TypeError("the class of the authority has no method sign")
    if hasattr(authority, "sign_jwt") is not hasattr(authority, "watch_jwt_keys"):
        raise TypeError("the class of the authority needs both sign_jwt and watch_jwt_keys, or neither")
    _check_methods(authority)
    if (match := getattr(authority, "name_match", "exact")) not in _NAME_MATCHES:
        raise TypeError(f"name_match is {match!r}: want one of {', '.join(_NAME_MATCHES)}")
    return Definition(name, version, settings_class, authority, settings.schema_of(settings_class))


def _check_methods(authority: Any) -> None:
    """Refuses a method that is not an ability: a misspelled one, or one of a later library, would
    be left out silently."""
    for name in dir(authority):
        known = name in _ABILITIES or name in _OTHERS or name.startswith("_")
        if not known and inspect.isroutine(getattr(authority, name)):
            raise TypeError(f"the method {name} is not an ability of this library, which has {', '.join(_ABILITIES)}, "
                            f"{' and '.join(_OTHERS)}: start the name of a helper with _")
