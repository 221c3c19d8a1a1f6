"""What a provider is asked and what it answers."""

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class SignRequest:
    """A certificate signing request. One that comes again with the same id is a retry."""

    id: str
    """A UUID."""
    csr: bytes
    """One PEM block CERTIFICATE REQUEST."""
    subject_id: str = ""
    """The SPIFFE ID that is asked for, if any."""
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()
    ttl: timedelta | None = None
    """The lifetime that is asked for; None: the CA's own."""
    token: str = field(default="", repr=False)
    """The workload's bearer credential. Never log it."""
    timeout: float | None = None
    """Seconds until the agent gives up."""
    requester: str = ""
    """Who asks, as the host knows it, for the CA's audit log. Decide nothing by it."""


@dataclass(frozen=True)
class Certificate:
    """The answer to a SignRequest, in PEM."""

    chain: bytes
    """The leaf first, then each one's issuer, never the root."""
    roots: bytes = b""
    """The roots that the chain leads to; empty if only the method roots tells them."""


@dataclass(frozen=True)
class RenewalWindow:
    """When a certificate had better be renewed (RFC 9773): times with their time zone."""

    start: datetime
    end: datetime
    explanation_url: str = ""
    retry_after: timedelta | None = None
    """When to ask again: 1 minute to 24 hours; None: 6 hours."""


@dataclass(frozen=True)
class TokenRequest:
    """A token exchange (RFC 8693)."""

    subject_token: str = field(repr=False)
    subject_token_type: str = ""
    audience: str = ""
    resource: str = ""
    scopes: tuple[str, ...] = ()
    requested_type: str = ""
    timeout: float | None = None


@dataclass(frozen=True)
class Token:
    """The answer to a TokenRequest."""

    access_token: str = field(repr=False)
    issued_type: str = ""
    expiry: datetime | None = None
    """When it ends, with its time zone; None: not known."""


@dataclass(frozen=True)
class JwtRequest:
    """A JWT-SVID to sign (SPIFFE's JWT-SVID standard)."""

    id: str
    """A UUID; a retry has the same."""
    subject_id: str
    """The SPIFFE ID that is the claim sub."""
    audiences: tuple[str, ...]
    """The claim aud: these and no others."""
    ttl: timedelta
    """The lifetime that is asked for; the CA may give less."""
    token: str = field(default="", repr=False)
    """The workload's bearer credential. Never log it."""
    timeout: float | None = None
    """Seconds until the agent gives up."""
