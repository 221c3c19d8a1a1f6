"""The certificates of a CA in the order of a reply. It needs the package cryptography."""

import re

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from .errors import Internal, Invalid
from .messages import Certificate

_MAX_BYTES, _MAX_CERTIFICATES, _MAX_LENGTH, _MAX_CHECKS = 1 << 20, 64, 10, 256
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")


def certificate_of(csr: bytes, *bags: bytes) -> Certificate:
    """Finds the leaf with the key of a CSR in bags of PEM, the intermediates that lead from it to a
    root by their signatures, and the roots. Bags have 64 certificates and 1 MiB at most. Raises
    Internal."""
    try:
        key = x509.load_pem_x509_csr(csr).public_key()
    except ValueError:
        raise Invalid("the CSR cannot be read") from None
    certificates = _parse(bags)
    leaves = [c for c in certificates if not _is_ca(c) and c.public_key() == key]
    if not leaves:
        raise Internal(f"none of the CA's {len(certificates)} certificates has the key of the CSR")
    way, roots = _climb(max(leaves, key=lambda c: c.not_valid_after_utc), certificates)
    return Certificate(chain=_encode(way), roots=_encode(roots))


def roots_of(*bags: bytes) -> bytes:
    """Returns the self-signed CA certificates in bags of PEM. Raises Internal if there are none."""
    certificates = _parse(bags)
    roots = [c for c in certificates if _is_root(c)]
    if not roots:
        raise Internal(f"none of the CA's {len(certificates)} certificates is a root")
    return _encode(roots)


def _climb(leaf: x509.Certificate, certificates: list[x509.Certificate]) -> tuple[list[x509.Certificate], list[x509.Certificate]]:
    """Goes breadth first, so that the first root ends the shortest way."""
    seen, roots, checks = {leaf}, [], 0
    ways, way, longest = [[leaf]], None, [leaf]
    for at in ways:  # which grows
        longest = max(longest, at, key=len)
        for issuer in certificates:
            if issuer in seen or not _is_ca(issuer) or issuer.subject != at[-1].issuer:
                continue
            checks += 1
            if checks > _MAX_CHECKS:
                raise Internal("the CA's certificates have too many ways to a root")
            if not _signed(at[-1], issuer):
                continue
            seen.add(issuer)
            if _is_root(issuer):
                roots.append(issuer)
                way = way or at
            elif len(at) < _MAX_LENGTH:
                ways.append([*at, issuer])
    return way or longest, roots


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _is_root(certificate: x509.Certificate) -> bool:
    return _is_ca(certificate) and _signed(certificate, certificate)


def _parse(bags: tuple[bytes, ...]) -> list[x509.Certificate]:
    """Returns each certificate once."""
    text = b"\n".join(bags)
    if len(text) > _MAX_BYTES:
        raise Internal(f"the CA's certificates have more than {_MAX_BYTES} bytes")
    blocks = dict.fromkeys(_PEM.findall(text))
    if len(blocks) > _MAX_CERTIFICATES:
        raise Internal(f"the CA returned more than {_MAX_CERTIFICATES} certificates")
    try:
        return list(dict.fromkeys(x509.load_pem_x509_certificate(block) for block in blocks))
    except ValueError:
        raise Internal("the CA returned a certificate that cannot be read") from None


def _encode(certificates: list[x509.Certificate]) -> bytes:
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)
