"""Tests of what the library has beside the protocol; run by a Python that has it installed."""

import asyncio
import datetime
import email.utils
import pathlib
import re
import tempfile
import unittest
from dataclasses import dataclass

import countersign_provider as cp
from countersign_provider import chain, settings
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def name_of(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certify(subject, key, issuer, signer, ca):
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name_of(subject)).issuer_name(name_of(issuer)).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    signed = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True).sign(signer, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


@dataclass(kw_only=True)
class Settings:
    url: cp.Url = cp.setting("a", schemes=("https", "http"))
    wait: datetime.timedelta = cp.setting("b", default=datetime.timedelta(minutes=90))
    file: cp.File | None = cp.setting("c", default=None)


class HelpersTest(unittest.TestCase):
    def test_bag_is_put_in_order(self):
        a, b, c, d = (ec.generate_private_key(ec.SECP256R1()) for _ in range(4))
        root, stranger = certify("root", a, "root", a, True), certify("root", d, "root", d, True)
        intermediate, leaf = certify("intermediate", b, "root", a, True), certify("leaf", c, "intermediate", b, False)
        csr = x509.CertificateSigningRequestBuilder().subject_name(name_of("leaf")).sign(c, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

        self.assertEqual(chain.certificate_of(csr, stranger + root, leaf + intermediate + leaf), cp.Certificate(leaf + intermediate, root))
        self.assertEqual(chain.certificate_of(csr, intermediate + leaf), cp.Certificate(leaf + intermediate, b""))
        self.assertEqual(chain.roots_of(intermediate + root), root)
        for bag in (intermediate, b"", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"):
            with self.assertRaises(cp.Internal):
                chain.certificate_of(csr, bag)
            with self.assertRaises(cp.Internal):
                chain.roots_of(bag)
        with self.assertRaises(cp.Invalid):
            chain.certificate_of(b"", root)

    def test_each_http_status_has_its_reason(self):
        for status, body, want in (
            (202, b"", cp.Pending), (302, b"", cp.Invalid), (400, b"{}", cp.Invalid), (404, b"<html>", cp.Unavailable),
            (404, b"[]", cp.Unavailable), (404, None, cp.Invalid), (401, b"", cp.Unauthenticated), (403, b"", cp.Denied),
            (408, b"", cp.Unavailable), (409, b"", cp.Aborted), (425, b"", cp.RateLimited), (429, b"", cp.RateLimited),
            (500, b"", cp.Internal), (503, b"", cp.Unavailable),
        ):
            self.assertIs(type(cp.http_error(status, body=body)), want, (status, body))

    def test_retry_after_is_seconds_or_date(self):
        soon = email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1), usegmt=True)
        for header, least, most in (("7", 7, 7), ("2000000000", 86400, 86400), (soon, 55, 60)):
            wait = cp.http_error(503, retry_after=header).retry_after.total_seconds()
            self.assertTrue(least <= wait <= most, (header, wait))
        for header in ("", "-7", "soon", "0", None, "Sun, 06 Nov 1994 08:00:00 GMT"):
            self.assertIsNone(cp.http_error(503, retry_after=header).retry_after, header)

    def test_settings_are_read_from_text(self):
        schema = settings.schema_of(Settings)
        self.assertEqual(schema["properties"]["wait"]["default"], "5400s")
        read = settings.build(Settings, {"url": "http://ca/a/", "wait": "1m1.5s", "file": "/dev/zero"})
        self.assertEqual((read.url.at("/sign"), read.wait, str(read.file)), ("http://ca/a/sign", datetime.timedelta(seconds=61.5), "/dev/zero"))
        with self.assertRaises(cp.Unavailable):
            read.file.read()
        for key, value in (("url", "ftp://ca"), ("url", "https://ca?x"), ("wait", "90"), ("wait", "-1s"), ("wait", "1d"), ("file", "")):
            found = settings.check(schema, {"url": "https://ca", key: value})
            self.assertRegex(str(found[0]), f'^the setting {key} is "{re.escape(value)}": want (a|the) .* such as ')
        self.assertNotIn("sesame", str(settings.check(schema, {"url": "https://me:sesame@ca"})[0]))

    def test_changed_file_is_read(self):
        async def run(file):
            pathlib.Path(file).write_bytes(b"a")
            self.assertEqual(await file.changed(b""), b"a")
            changed = asyncio.create_task(file.changed(b"a"))
            await asyncio.sleep(0)
            pathlib.Path(file).write_bytes(b"b")
            self.assertEqual(await changed, b"b")

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(asyncio.wait_for(run(cp.File(f"{folder}/file")), 60))


if __name__ == "__main__":
    unittest.main()
