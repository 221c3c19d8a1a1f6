import pathlib
import unittest

from countersign_provider import Invalid
from countersign_provider.testing import open_authority, sign_request
from cryptography import x509

from provider_acme import Authority, Settings


class ProviderTest(unittest.TestCase):
    def test_ca_is_yours(self):
        for file in pathlib.Path(__file__).parent.glob("*.py"):
            if not file.name.startswith("test_") and "countersign_provider.testing" in file.read_text():
                self.fail(f"{file.name}: the function __init__ signs with a CA for tests, which no peer trusts: "
                          "put your CA's client in its place (step 4 of docs/write-a-provider.md)")

    def test_certificate_has_requested_key_and_name(self):
        request = sign_request("spiffe://example.org/web")
        authority = open_authority(Settings, Authority, {})
        leaf = x509.load_pem_x509_certificates(authority.sign(request).chain)[0]
        self.assertEqual(leaf.public_key(), x509.load_pem_x509_csr(request.csr).public_key())
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual(names.get_values_for_type(x509.UniformResourceIdentifier), [request.subject_id])
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificates(authority.roots())[0])

    def test_wrong_settings_are_refused(self):
        for name, settings in {"unknown": {"dri": "x"}, "wrong type": {"dir": 7}}.items():
            with self.subTest(name), self.assertRaises(Invalid):
                open_authority(Settings, Authority, settings)


if __name__ == "__main__":
    unittest.main()
