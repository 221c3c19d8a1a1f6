//! Has certificates signed by acme.

use countersign_provider::{Ability, Authority, Certificate, Error, SignRequest, serve, testing::Ca};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a configuration says below the provider's settings.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// folder of root.pem and root-key.pem, which are created if missing; empty: in memory
    #[serde(default)]
    #[schemars(extend("x-countersign-address" = "path"))]
    dir: String,
    /// trust domain of the SPIFFE IDs to sign; empty: any
    #[serde(default)]
    trust_domain: String,
}

/// A CA that was opened with its settings.
struct Acme {
    ca: Ca, // put your CA's client in its place
}

impl Authority for Acme {
    type Settings = Settings;
    const ABILITIES: &'static [Ability] = &[Ability::Roots];

    async fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Acme { ca: Ca::open(&settings.dir, &settings.trust_domain)? })
    }

    /// Has a request signed. What an error means to the agent is said by its constructor:
    /// [`Error::denied`], [`Error::unavailable`], [`Error::retry_after`] and so on.
    async fn sign(&self, request: SignRequest) -> Result<Certificate, Error> {
        self.ca.sign(&request)
    }

    /// Returns the CA's roots, PEM; leave it out where each reply has them.
    async fn roots(&self) -> Result<String, Error> {
        Ok(self.ca.roots())
    }
}

fn main() {
    serve::<Acme>("acme", env!("CARGO_PKG_VERSION"))
}
