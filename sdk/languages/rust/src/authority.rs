use std::future::Future;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::{Certificate, Error, JwtRequest, RenewalWindow, Secret, SignRequest, Token, TokenRequest};

/// What a provider can do besides signing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ability {
    /// [`Authority::roots`]
    Roots,
    /// [`Authority::watch_roots`]
    WatchRoots,
    /// [`Authority::exchange_token`]
    ExchangeToken,
    /// [`Authority::sign`] certifies the names of the request, whatever the CSR says.
    NamesFromRequest,
    /// [`Authority::renewal_info`]
    RenewalInfo,
    /// [`Authority::revocations`]
    Revocations,
    /// [`Authority::sign_jwt`] and [`Authority::watch_jwt_keys`]
    Jwt,
}

/// How closely the names of a certificate match those of its request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NameMatch {
    /// The names of the request, no more and no fewer.
    #[default]
    Exact,
    /// A SPIFFE ID in the trust domain of the request's.
    TrustDomain,
    /// The CA chooses the names.
    Any,
}

/// A CA that was opened with its settings. Many calls run at the same time; one whose caller goes
/// away is dropped where it awaits. New settings open another one; the old one is dropped after
/// its last call. A panic is an error to the agent.
pub trait Authority: Send + Sync + Sized + 'static {
    /// What a configuration says below the provider's settings: a struct whose fields' doc comments
    /// are the documentation. Derive `Deserialize` and `JsonSchema`, and add
    /// `#[serde(deny_unknown_fields)]`. A field of type [`crate::Secret`] is never printed.
    type Settings: DeserializeOwned + JsonSchema + Send + 'static;

    /// The methods below that are there, besides [`Authority::sign`]; the host calls no others.
    const ABILITIES: &'static [Ability] = &[];

    /// Whether the CA chooses how long certificates live. This and the next two are the host's
    /// defaults, which its operator may change.
    const FIXED_LIFETIME: bool = false;

    /// How closely the names of a certificate match those of its request.
    const NAME_MATCH: NameMatch = NameMatch::Exact;

    /// Whether the CA signs nothing without a token.
    const NEEDS_TOKEN: bool = false;

    /// Checks, without network, what types cannot say.
    ///
    /// # Errors
    /// [`Error::invalid`] with [`Error::at`].
    fn validate(_settings: &Self::Settings) -> Result<(), Error> {
        Ok(())
    }

    /// Asks the CA whether the settings work, and has nothing signed. None: there is no such check.
    fn validate_online(_settings: Self::Settings) -> impl Future<Output = Option<Result<(), Error>>> + Send {
        async { None }
    }

    /// Opens the CA.
    fn open(settings: Self::Settings) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Has a request signed.
    fn sign(&self, request: SignRequest) -> impl Future<Output = Result<Certificate, Error>> + Send;

    /// The CA's roots now, PEM.
    fn roots(&self) -> impl Future<Output = Result<String, Error>> + Send {
        async { Err(missing()) }
    }

    /// Sends the roots now and each later set, until a send fails.
    fn watch_roots(&self, _roots: SetSender) -> impl Future<Output = Result<(), Error>> + Send {
        async { Err(missing()) }
    }

    /// Exchanges a token for one that the CA takes.
    fn exchange_token(&self, _request: TokenRequest) -> impl Future<Output = Result<Token, Error>> + Send {
        async { Err(missing()) }
    }

    /// When a leaf (PEM) had better be renewed.
    fn renewal_info(&self, _certificate: String) -> impl Future<Output = Result<RenewalWindow, Error>> + Send {
        async { Err(missing()) }
    }

    /// The revocation lists that the CA publishes: PEM blocks `X509 CRL`, complete lists with
    /// nextUpdate, 3 MiB at most. Blocks `CERTIFICATE` among them are intermediate CAs that signed
    /// one. Sign no list for each call: every change goes to every workload.
    fn revocations(&self) -> impl Future<Output = Result<String, Error>> + Send {
        async { Err(missing()) }
    }

    /// Signs a JWT-SVID: a JWS in compact form of at most 16,384 bytes, whose kid is one of the
    /// published keys.
    fn sign_jwt(&self, _request: JwtRequest) -> impl Future<Output = Result<Secret, Error>> + Send {
        async { Err(missing()) }
    }

    /// Sends the JWK set (RFC 7517, section 5) that verifies JWT-SVIDs now, and each later one,
    /// until a send fails: a key before it signs, and until its last token has expired.
    fn watch_jwt_keys(&self, _keys: SetSender) -> impl Future<Output = Result<(), Error>> + Send {
        async { Err(missing()) }
    }
}

pub(crate) fn missing() -> Error {
    Error::new(crate::Reason::Unimplemented, "the provider has no such ability")
}

/// Takes sets for the agent: of roots, or of keys.
#[derive(Debug)]
pub struct SetSender(pub(crate) mpsc::Sender<String>);

impl SetSender {
    /// Sends a whole set: roots in PEM, keys as JSON. One that is as the last one is left out. It
    /// waits until the agent has room.
    ///
    /// # Errors
    /// Fails when the watch has ended.
    pub async fn send(&self, set: String) -> Result<(), Error> {
        self.0.send(set).await.map_err(|_| Error::unavailable("the watch has ended"))
    }
}
