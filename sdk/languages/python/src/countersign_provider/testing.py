"""A CA in memory or in a folder, to try a provider with before there is a real one. It needs
the package cryptography."""

import base64
import datetime
import json
import os
import pathlib
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .errors import Denied, Invalid
from .messages import Certificate, JwtRequest, SignRequest

_HOUR = datetime.timedelta(hours=1)
_MAX_ANSWERS = 1024


class CA:
    """Signs what a request asks for, for one trust domain if it is given one. With a folder, its
    root is root.pem there, with root-key.pem; both are created if missing."""

    def __init__(self, folder: str = "", trust_domain: str = ""):
        self.trust_domain = trust_domain
        self._jwt = ec.generate_private_key(ec.SECP256R1())
        self._answers: dict[tuple[str, bytes], bytes] = {}  # a retry gets the same certificate
        try:
            self._key, self._root = _stored(pathlib.Path(folder)) if folder else _make_root()
            self._lists = _empty_list(self._root, self._key)
        except (OSError, ValueError) as error:
            raise Invalid(f"the folder of the CA: {type(error).__name__} with root-key.pem or root.pem") from None

    def roots(self) -> bytes:
        return _pem(self._root)

    def sign(self, request: SignRequest) -> Certificate:
        known = self._answers.get((request.id, request.csr))
        if known is None:
            known = _pem(self._issue(request))
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.pop(next(iter(self._answers)), None)
            self._answers[request.id, request.csr] = known
        return Certificate(chain=known, roots=self.roots())

    def revocations(self) -> bytes:
        """A revocation list without entries, made at the start and valid for a week."""
        return self._lists

    def jwt_keys(self) -> dict[str, Any]:
        point = self._jwt.public_key().public_numbers()
        x, y = (_base64(number.to_bytes(32)) for number in (point.x, point.y))
        return {"keys": [{"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "test", "use": "jwt-svid"}]}

    def sign_jwt(self, request: JwtRequest) -> str:
        """Signs a JWT-SVID with a key that is made at the start."""
        self._check_id(request.subject_id)
        now = int(datetime.datetime.now().timestamp())
        claims = {"sub": request.subject_id, "aud": request.audiences, "iat": now, "exp": now + int(request.ttl.total_seconds())}
        text = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "ES256", "kid": "test", "typ": "JWT"}, claims))
        r, s = utils.decode_dss_signature(self._jwt.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_base64(r.to_bytes(32) + s.to_bytes(32))}"

    def _check_id(self, subject_id: str) -> None:
        inside = f"spiffe://{self.trust_domain}/" if self.trust_domain else "spiffe://"
        if subject_id and not subject_id.startswith(inside):
            raise Denied(f"the SPIFFE ID is outside the trust domain {self.trust_domain}")

    def _names(self, request: SignRequest) -> x509.SubjectAlternativeName:
        """The names of the request count, whatever the CSR says."""
        self._check_id(request.subject_id)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(request.subject_id)] if request.subject_id else []
        names += [x509.DNSName(name) for name in request.dns_names]
        names += [x509.IPAddress(ip) for ip in request.ip_addresses]
        if not names:
            raise Invalid("the request has no names")
        return x509.SubjectAlternativeName(names)

    def _issue(self, request: SignRequest) -> x509.Certificate:
        csr, now = _read(request.csr), datetime.datetime.now(datetime.timezone.utc)
        server_and_client = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([])).issuer_name(self._root.subject).public_key(csr.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1)).not_valid_after(now + (request.ttl or _HOUR))
            .add_extension(self._names(request), critical=True)  # RFC 5280, 4.2.1.6: the subject is empty
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(server_and_client), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _read(pem: bytes) -> x509.CertificateSigningRequest:
    try:
        csr = x509.load_pem_x509_csr(pem)
    except ValueError:
        raise Invalid("the CSR is not a PEM CERTIFICATE REQUEST") from None
    if not csr.is_signature_valid:
        raise Invalid("the CSR is not signed by its own key")
    return csr


def _make_root() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA for tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    return key, (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - _HOUR).not_valid_after(now + 24 * 3650 * _HOUR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _empty_list(root: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns a revocation list of a week without entries. Its number is the time."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateRevocationListBuilder().issuer_name(root.subject)
        .last_update(now - datetime.timedelta(minutes=1)).next_update(now + datetime.timedelta(days=7))
        .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        .sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )


def _stored(folder: pathlib.Path) -> tuple[Any, x509.Certificate]:
    key_file, root_file = folder / "root-key.pem", folder / "root.pem"
    if not root_file.exists():
        key, root = _make_root()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        # The key first, with mode 0600: an existing root always has its key.
        with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(private)
        root_file.write_bytes(_pem(root))
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    return key, x509.load_pem_x509_certificate(root_file.read_bytes())


def _usage(**on: bool) -> x509.KeyUsage:
    every = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: on.get(name, False) for name in every})


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
