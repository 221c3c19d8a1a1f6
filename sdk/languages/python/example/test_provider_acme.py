import pathlib
import sys
import unittest
from typing import Any

from countersign_provider.conformance import conformance

HERE = pathlib.Path(__file__).parent


def start_ca(test: unittest.TestCase) -> dict[str, Any] | None:
    """Starts a server in the place of your CA, so that the tests need no network, and returns the
    settings that lead to it; test.addCleanup stops it. Without settings, the suite uses those of
    kit.yaml."""
    return None


class ProviderTest(unittest.TestCase):
    def test_conformance(self):
        """Runs the suite on the program, once your CA's client is in provider_acme.py."""
        self.check_stand_in()
        conformance(pathlib.Path(sys.executable).with_name("countersign-provider-acme"), HERE / "kit.yaml", start_ca(self))

    def check_stand_in(self):
        for file in HERE.glob("*.py"):
            if not file.name.startswith("test_") and "countersign_provider.testing" in file.read_text():
                self.fail(f"{file.name}: the function __init__ signs with a CA for tests, which no peer trusts: "
                          "put your CA's client in its place (step 4 of docs/write-a-provider.md)")


if __name__ == "__main__":
    unittest.main()
