#!/usr/bin/env python3
"""A provider with every ability, whose errors tests ask for by SPIFFE ID."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

import countersign_provider as cp
from countersign_provider.testing import CA

ERRORS = {
    "invalid": cp.Invalid, "denied": cp.Denied, "unauthenticated": cp.Unauthenticated, "rate-limited": cp.RateLimited,
    "unavailable": cp.Unavailable, "pending": cp.Pending, "aborted": cp.Aborted, "internal": cp.Internal, "unknown": cp.ProviderError,
    "not-configured": cp.NotConfigured,
}


@dataclass(kw_only=True)
class Account:
    name: str = cp.setting("name of the account")
    password: str = cp.setting("its password", secret=True)


@dataclass(kw_only=True)
class Settings:
    zone: Literal["a", "b"] = cp.setting("zone of the CA", default="a")
    pools: list[str] = cp.setting("pools to sign from", default=[])
    tries: int = cp.setting("how often to ask", default=3)
    account: Account | None = cp.setting("account at the CA", default=None)

    def validate(self):
        if self.tries < 1:
            raise cp.Invalid(f"the setting tries is {self.tries}: want 1 or more", "/tries")

    async def validate_online(self):
        if self.zone == "b":
            raise cp.Unavailable("the CA of zone b is away")


class Full:
    names_from_request = True
    fixed_lifetime, name_match = True, "trust-domain"

    def __init__(self, settings):
        self.ca, self.zone, self.issued = CA(), settings.zone, set()

    async def sign(self, request):
        word = request.subject_id.rpartition("/")[2]
        if word in ERRORS:
            raise ERRORS[word](f"{word} was asked for with {request.token}")
        match word:
            case "retry-after":
                raise cp.RetryAfter(timedelta(seconds=90), "come back later")
            case "requester":
                raise cp.Denied(f"asked by {request.requester}")
            case "bug":
                raise KeyError(request.token)
            case "hang":
                print("the call began")
                try:
                    await asyncio.sleep(3600)
                finally:
                    print("the call was cancelled")
        signed = self.ca.sign(request)
        self.issued.add(b"".join(signed.chain.split()))
        return signed

    def roots(self):
        return self.ca.roots()

    async def watch_roots(self):
        while True:
            yield self.ca.roots()
            await asyncio.sleep(0.05)

    async def exchange_token(self, request):
        if request.subject_token == "stranger":
            raise cp.Unauthenticated(f"unknown token {request.subject_token}")
        return cp.Token("exchanged-for-" + request.audience, expiry=datetime.now(timezone.utc) + timedelta(hours=1))

    async def renewal_info(self, certificate):
        if b"".join(certificate.split()) not in self.issued:
            raise cp.Invalid("no such certificate")
        now = datetime.now(timezone.utc)
        return cp.RenewalWindow(now + timedelta(minutes=20), now + timedelta(minutes=30), "https://ca.example.org/why", timedelta(hours=1))

    def revocations(self):
        return self.ca.revocations()

    def sign_jwt(self, request):
        if request.subject_id.rpartition("/")[2] in ERRORS:
            raise cp.Denied(f"denied with {request.token}")
        return self.ca.sign_jwt(request)

    async def watch_jwt_keys(self):
        while True:
            yield self.ca.jwt_keys()
            await asyncio.sleep(0.05)

    async def close(self):
        print("closed zone", self.zone)


cp.serve("full", "1.2.3", Settings, Full)
