"""HTTP replies of a CA that are not what was asked for, as the errors that they mean."""

import json
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

from . import errors

_LONGEST = timedelta(days=1)
_BY_STATUS = {
    202: errors.Pending, 401: errors.Unauthenticated, 403: errors.Denied, 408: errors.Unavailable, 409: errors.Aborted,
    425: errors.RateLimited, 429: errors.RateLimited, 500: errors.Internal,
}


def http_error(status: int, *, retry_after: str | None = None, body: bytes | None = None, text: str = "") -> errors.ProviderError:
    """Returns the error that a CA's HTTP status other than 2xx stands for, 202 included: 202 Pending,
    401 Unauthenticated, 403 Denied, 409 Aborted, 425 and 429 RateLimited, 500 Internal, 408 and other
    5xx Unavailable, all else Invalid. With body, a status that calls the request wrong counts as
    Unavailable if the body is not a JSON object: a proxy answered. retry_after is the header of that
    name; text is what the CA said, which must be clean: see clean_text."""
    said = f": {text}" if text else ""
    error = _kind(status, body)(f"the CA answered with {status}{said}")
    error.retry_after = _wait(retry_after or "", datetime.now(timezone.utc))
    return error


def _kind(status: int, body: bytes | None) -> type[errors.ProviderError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    foreign = status >= 400 and body is not None and not _is_object(body)
    return errors.Unavailable if status >= 500 or foreign else errors.Invalid


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def _wait(header: str, now: datetime) -> timedelta | None:
    """Reads Retry-After: seconds, or the time at which to come back (RFC 9110, section 10.2.3)."""
    try:
        if header.isascii() and header.isdigit() and len(header) <= 10:
            wait = timedelta(seconds=int(header))
        else:
            wait = parsedate_to_datetime(header) - now
    except (TypeError, ValueError):
        return None
    return min(wait, _LONGEST) if wait > timedelta() else None
