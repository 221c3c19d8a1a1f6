"""Has certificates signed by acme."""

from dataclasses import dataclass

from countersign_provider import Certificate, SignRequest, serve, setting
from countersign_provider.testing import CA


@dataclass(kw_only=True)
class Settings:
    """What a configuration says below the provider's settings."""

    dir: str = setting(
        "folder of root.pem and root-key.pem, which are created if missing; empty: in memory", default="", address="path"
    )
    trust_domain: str = setting("trust domain of the SPIFFE IDs to sign; empty: any", default="")


class Authority:
    """A CA that was opened with its settings."""

    def __init__(self, settings: Settings):
        self.ca = CA(settings.dir, settings.trust_domain)  # put your CA's client in its place

    def sign(self, request: SignRequest) -> Certificate:
        """Has a request signed. What an error means to the agent is said by its class: Denied,
        Unavailable, RetryAfter and so on, of countersign_provider."""
        return self.ca.sign(request)

    def roots(self) -> bytes:
        """Returns the CA's roots, PEM; leave it out where each reply has them."""
        return self.ca.roots()


def main() -> None:
    serve("acme", "0.1.0", Settings, Authority)


if __name__ == "__main__":
    main()
