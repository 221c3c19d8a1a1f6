"""The protocol's messages, from its descriptor, and what they are to an author."""

import ipaddress
import json
from datetime import timezone
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import error_details_pb2, status_pb2

from .errors import Internal, Invalid, ProviderError, clean_text
from .messages import Certificate, JwtRequest, RenewalWindow, SignRequest, Token, TokenRequest

PACKAGE = "countersign.provider.v1"
MAX_MESSAGE = 4 << 20
_MAX_PEM, _MAX_CSR, _MAX_TOKEN, _MAX_NAMES, _MAX_WORD = 1 << 20, 64 << 10, 64 << 10, 1000, 2048
_MAX_LISTS, _MAX_AUDIENCES, _MAX_JWT = 3 << 20, 64, 16 << 10


def _load() -> dict[str, Any]:
    # A pool of our own: another package may have a file of the same name.
    pool = descriptor_pool.DescriptorPool()
    raw = resources.files(__package__).joinpath("provider.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(raw)
    for file in files.file:
        pool.Add(file)
    ours = pool.FindFileByName(files.file[-1].name)
    classes = {name: message_factory.GetMessageClass(m) for name, m in ours.message_types_by_name.items()}
    return classes


#: The classes of the messages by name.
MESSAGES = _load()


def plain(value: Any) -> Any:
    """Makes whole numbers, which a google.protobuf.Struct does not have, int again."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value


def sign_request(message: Any, timeout: float | None) -> SignRequest:
    """Raises Invalid for what no host of ours sends."""
    check_token(message.token)
    if not message.csr or len(message.csr) > _MAX_CSR:
        raise Invalid(f"the CSR has {len(message.csr)} bytes, want 1 to {_MAX_CSR}")
    if len(message.dns_names) > _MAX_NAMES or len(message.ip_addresses) > _MAX_NAMES:
        raise Invalid(f"the request has too many names: {_MAX_NAMES} are allowed")
    _check_words(message.subject_id, message.requester, *message.dns_names, token=message.token)
    try:
        ips = tuple(ipaddress.ip_address(ip) for ip in message.ip_addresses)
        ttl = message.ttl.ToTimedelta() if message.HasField("ttl") else None
    except (ValueError, OverflowError):
        raise Invalid("the request has an IP address or a lifetime that cannot be read") from None
    return SignRequest(
        id=message.request_id, csr=message.csr, subject_id=message.subject_id, dns_names=tuple(message.dns_names),
        ip_addresses=ips, ttl=ttl or None, token=message.token, timeout=timeout, requester=message.requester)


def certificate(reply: Certificate) -> Any:
    if not isinstance(reply, Certificate) or not reply.chain:
        raise Internal("sign returned no Certificate with a chain")
    if max(len(reply.chain), len(reply.roots)) > _MAX_PEM:
        raise Internal(f"the CA's certificates have more than {_MAX_PEM} bytes")
    return MESSAGES["CSRSignResponse"](chain=reply.chain, roots=reply.roots)


def roots(pem: bytes) -> bytes:
    return _bounded(pem, "roots", _MAX_PEM)


def lists(pem: bytes) -> bytes:
    return _bounded(pem, "revocation lists", _MAX_LISTS)


def keys(jwks: bytes | str | dict[str, Any]) -> bytes:
    """Returns a JWK set, which may be given as text or as a dict."""
    text = json.dumps(jwks) if isinstance(jwks, dict) else jwks
    return _bounded(text.encode() if isinstance(text, str) else text, "JWT keys", _MAX_PEM)


def _bounded(text: bytes, what: str, most: int) -> bytes:
    if not text or len(text) > most:
        raise Internal(f"the CA has {len(text or b'')} bytes of {what}, want 1 to {most}")
    return text


def jwt_request(message: Any, timeout: float | None) -> JwtRequest:
    """Raises Invalid for what no host of ours sends."""
    check_token(message.token)
    if not 0 < len(message.audiences) <= _MAX_AUDIENCES:
        raise Invalid(f"the request has {len(message.audiences)} audiences, want 1 to {_MAX_AUDIENCES}")
    _check_words(message.subject_id, *message.audiences, token=message.token)
    try:
        ttl = message.ttl.ToTimedelta()
    except (ValueError, OverflowError):
        raise Invalid("the request has a lifetime that cannot be read") from None
    if not message.subject_id or ttl.total_seconds() <= 0:
        raise Invalid("the request has no SPIFFE ID or no lifetime")
    return JwtRequest(id=message.request_id, subject_id=message.subject_id, audiences=tuple(message.audiences), ttl=ttl,
                      token=message.token, timeout=timeout)


def jwt(svid: str) -> Any:
    if not isinstance(svid, str) or not 0 < len(svid) <= _MAX_JWT:
        raise Internal(f"sign_jwt returned no text of 1 to {_MAX_JWT} bytes")
    return MESSAGES["SignJwtResponse"](svid=svid)


def token_request(message: Any, timeout: float | None) -> TokenRequest:
    """Raises Invalid for what no host of ours sends."""
    check_token(message.subject_token)
    if not message.subject_token or len(message.scopes) > _MAX_NAMES:
        raise Invalid(f"the request has no token, or more than {_MAX_NAMES} scopes")
    words = (message.subject_token_type, message.audience, message.resource, message.requested_token_type)
    _check_words(*words, *message.scopes, token=message.subject_token)
    return TokenRequest(
        subject_token=message.subject_token, subject_token_type=message.subject_token_type, audience=message.audience,
        resource=message.resource, scopes=tuple(message.scopes), requested_type=message.requested_token_type, timeout=timeout)


def token(reply: Token) -> Any:
    if not isinstance(reply, Token) or not reply.access_token:
        raise Internal("exchange_token returned no Token with an access token")
    out = MESSAGES["ExchangeTokenResponse"](access_token=reply.access_token, issued_token_type=reply.issued_type)
    if reply.expiry is not None:
        out.expiry.FromDatetime(reply.expiry.astimezone(timezone.utc))
    return out


def renewal(reply: RenewalWindow) -> Any:
    if not isinstance(reply, RenewalWindow) or reply.start >= reply.end:
        raise Internal("renewal_info returned no RenewalWindow that ends after its start")
    out = MESSAGES["GetRenewalInfoResponse"](explanation_url=reply.explanation_url)
    out.window_start.FromDatetime(reply.start.astimezone(timezone.utc))
    out.window_end.FromDatetime(reply.end.astimezone(timezone.utc))
    if reply.retry_after is not None:
        out.retry_after.FromTimedelta(reply.retry_after)
    return out


def leaf(message: Any) -> bytes:
    """Raises Invalid for what no host of ours sends."""
    if not message.certificate or len(message.certificate) > _MAX_CSR:
        raise Invalid(f"the certificate has {len(message.certificate)} bytes, want 1 to {_MAX_CSR}")
    return message.certificate


def check_token(value: str) -> None:
    """Refuses what could break out of a header."""
    if len(value) > _MAX_TOKEN or _has_controls(value):
        raise Invalid(f"the token has more than {_MAX_TOKEN} bytes, or control characters")


def _check_words(*words: str, token: str) -> None:
    for word in words:
        if len(word) > _MAX_WORD or _has_controls(word):
            raise Invalid(f'"{clean_text(word, token)}" in the request does not have at most {_MAX_WORD} printable bytes')


def _has_controls(text: str) -> bool:
    return any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in text)


def status(error: ProviderError, secret: str) -> tuple[str, bytes]:
    """Returns the text of a status, and google.rpc.Status with ErrorInfo and RetryInfo."""
    out = status_pb2.Status(code=error.code.value[0], message=clean_text(str(error), secret))
    out.details.add().Pack(error_details_pb2.ErrorInfo(domain="countersign.dev", reason=error.reason))
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(error.retry_after)
        out.details.add().Pack(retry)
    return out.message, out.SerializeToString()
