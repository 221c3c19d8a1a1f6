import unittest

from countersign_provider import Invalid
from countersign_provider.testing import open_authority, sign_request
from cryptography import x509

from provider_acme import Authority, Settings


class ProviderTest(unittest.TestCase):
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
