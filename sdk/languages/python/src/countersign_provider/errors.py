"""Errors by what they mean to the agent. The operator reads their text: no keys, no tokens."""

from datetime import timedelta

import grpc

_MAX_TEXT = 256
_MIN_PIECE = 16


class ProviderError(Exception):
    """An error that is none of the others: the agent waits and tries again."""

    code, reason = grpc.StatusCode.UNKNOWN, "UNKNOWN"
    #: What the CA asked the agent to wait, if it said.
    retry_after: timedelta | None = None

    def __init__(self, text: str, *, retry_after: timedelta | None = None):
        super().__init__(text)
        if retry_after is not None:
            self.retry_after = retry_after


class Invalid(ProviderError):
    """The request cannot be signed as it is, or a setting is wrong. The attempt ends."""

    code, reason = grpc.StatusCode.INVALID_ARGUMENT, "INVALID"

    def __init__(self, text: str, pointer: str = ""):
        """pointer is a JSON Pointer (RFC 6901) to the setting."""
        super().__init__(text)
        self.pointer = pointer


class Denied(ProviderError):
    """The caller is not allowed this certificate. The attempt ends."""

    code, reason = grpc.StatusCode.PERMISSION_DENIED, "DENIED"


class Unauthenticated(ProviderError):
    """The token was not accepted. The agent reads it again and tries once more."""

    code, reason = grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"


class RateLimited(ProviderError):
    """Too many requests, or an exhausted quota. The agent waits."""

    code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED"


class RetryAfter(RateLimited):
    """RateLimited, until after."""

    def __init__(self, after: timedelta, text: str):
        super().__init__(text, retry_after=after)


class Unavailable(ProviderError):
    """The CA cannot be reached or is not ready. The agent waits."""

    code, reason = grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"


class Pending(ProviderError):
    """The CA has the request and has not decided on it yet, as while a person has to approve it.
    The agent repeats the request: after retry_after, else within 10 minutes."""

    code, reason = grpc.StatusCode.UNAVAILABLE, "PENDING"


class Aborted(ProviderError):
    """A conflict with another request. The agent waits."""

    code, reason = grpc.StatusCode.ABORTED, "ABORTED"


class Internal(ProviderError):
    """The CA or this provider failed. The agent waits."""

    code, reason = grpc.StatusCode.INTERNAL, "INTERNAL"


class NotConfigured(ProviderError):
    """There are no settings. The agent sends them and calls again."""

    code, reason = grpc.StatusCode.FAILED_PRECONDITION, "NOT_CONFIGURED"


class Unimplemented(ProviderError):
    """The ability is missing, which the agent remembers. Leave out the method instead."""

    code, reason = grpc.StatusCode.UNIMPLEMENTED, "UNIMPLEMENTED"


class TimedOut(ProviderError):
    """No reply in time. The agent waits."""

    code, reason = grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE"


def clean_text(text: str, *tokens: str) -> str:
    """Makes text of a CA safe for an error or a log: tokens, and pieces of one, become
    "(secret)", what does not print is escaped, and 256 bytes remain."""
    text = text[: 64 * _MAX_TEXT]
    for token in filter(None, tokens):
        text = _without(text, token)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)
    return text.encode("utf-8", "replace")[:_MAX_TEXT].decode("utf-8", "ignore")


def _without(text: str, token: str) -> str:
    text = text.replace(token, "(secret)")
    out, at = [], 0
    while at < len(text):
        end = at + _MIN_PIECE
        if text[at:end] not in token or end > len(text):
            out.append(text[at])
            at += 1
            continue
        while end < len(text) and text[at : end + 1] in token:
            end += 1
        out.append("(secret)")
        at = end
    return "".join(out)
