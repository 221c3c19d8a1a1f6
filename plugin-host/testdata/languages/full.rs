//! A provider with every ability, whose errors tests ask for by SPIFFE ID.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use countersign_provider::{
    Ability, Authority, Certificate, Error, JwtRequest, NameMatch, Reason, RenewalWindow, Secret, SetSender, SignRequest, Token,
    TokenRequest, serve, testing::Ca,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Zone {
    #[default]
    A,
    B,
}

/// an account
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Account {
    /// name of the account
    #[allow(dead_code)]
    name: String,
    /// its password
    #[allow(dead_code)]
    password: Secret,
}

/// settings
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// zone of the CA
    #[serde(default)]
    zone: Zone,
    /// pools to sign from
    #[serde(default)]
    #[allow(dead_code)]
    pools: Vec<String>,
    /// how often to ask
    #[serde(default = "three")]
    tries: u32,
    /// account at the CA
    #[allow(dead_code)]
    account: Option<Account>,
}

fn three() -> u32 {
    3
}

struct Full {
    ca: Ca,
    issued: Mutex<HashSet<String>>, // without white space
    zone: Zone,
}

impl Full {
    fn issued(&self) -> MutexGuard<'_, HashSet<String>> {
        self.issued.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        println!("closed zone {}", if matches!(self.zone, Zone::A) { "a" } else { "b" });
    }
}

/// Says that a call was dropped.
struct Cancelled;

impl Drop for Cancelled {
    fn drop(&mut self) {
        println!("the call was cancelled");
    }
}

impl Authority for Full {
    type Settings = Settings;
    const ABILITIES: &'static [Ability] = &[
        Ability::Roots,
        Ability::WatchRoots,
        Ability::ExchangeToken,
        Ability::NamesFromRequest,
        Ability::RenewalInfo,
        Ability::Revocations,
        Ability::Jwt,
    ];
    const FIXED_LIFETIME: bool = true;
    const NAME_MATCH: NameMatch = NameMatch::TrustDomain;

    fn validate(settings: &Settings) -> Result<(), Error> {
        match settings.tries {
            0 => Err(Error::invalid("the setting tries is 0: want 1 or more").at("/tries")),
            _ => Ok(()),
        }
    }

    async fn validate_online(settings: Settings) -> Option<Result<(), Error>> {
        Some(match settings.zone {
            Zone::A => Ok(()),
            Zone::B => Err(Error::unavailable("the CA of zone b is away")),
        })
    }

    async fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Full { ca: Ca::open("", "")?, issued: Mutex::default(), zone: settings.zone })
    }

    async fn sign(&self, request: SignRequest) -> Result<Certificate, Error> {
        let token = request.token.reveal();
        let word = request.subject_id.rsplit('/').next().unwrap_or_default();
        let reason = match word {
            "invalid" => Reason::Invalid,
            "denied" => Reason::Denied,
            "unauthenticated" => Reason::Unauthenticated,
            "rate-limited" => Reason::RateLimited,
            "unavailable" => Reason::Unavailable,
            "pending" => Reason::Pending,
            "requester" => return Err(Error::denied(format!("asked by {}", request.requester))),
            "aborted" => Reason::Aborted,
            "internal" => Reason::Internal,
            "unknown" => Reason::Unknown,
            "not-configured" => Reason::NotConfigured,
            "retry-after" => return Err(Error::rate_limited("come back later").retry_after(Duration::from_secs(90))),
            "bug" => panic!("{token}"),
            "hang" => {
                println!("the call began");
                let _cancelled = Cancelled;
                tokio::time::sleep(HOUR).await;
                Reason::Deadline
            }
            _ => {
                let signed = self.ca.sign(&request)?;
                self.issued().insert(signed.chain.split_whitespace().collect());
                return Ok(signed);
            }
        };
        Err(Error::new(reason, format!("{word} was asked for with {token}")))
    }

    async fn roots(&self) -> Result<String, Error> {
        Ok(self.ca.roots())
    }

    async fn watch_roots(&self, roots: SetSender) -> Result<(), Error> {
        loop {
            roots.send(self.ca.roots()).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn exchange_token(&self, request: TokenRequest) -> Result<Token, Error> {
        let subject = request.subject_token.reveal();
        if subject == "stranger" {
            return Err(Error::unauthenticated(format!("unknown token {subject}")));
        }
        let access_token = format!("exchanged-for-{}", request.audience).into();
        Ok(Token { access_token, issued_type: String::new(), expiry: Some(SystemTime::now() + HOUR) })
    }

    async fn renewal_info(&self, certificate: String) -> Result<RenewalWindow, Error> {
        if !self.issued().contains(&certificate.split_whitespace().collect::<String>()) {
            return Err(Error::invalid("no such certificate"));
        }
        let start = SystemTime::now() + HOUR / 3;
        Ok(RenewalWindow { start, end: start + HOUR / 6, explanation_url: "https://ca.example.org/why".into(), retry_after: Some(HOUR) })
    }

    async fn revocations(&self) -> Result<String, Error> {
        Ok(self.ca.revocations())
    }

    async fn sign_jwt(&self, request: JwtRequest) -> Result<Secret, Error> {
        if request.subject_id.ends_with("/denied") {
            return Err(Error::denied(format!("denied with {}", request.token.reveal())));
        }
        self.ca.sign_jwt(&request)
    }

    async fn watch_jwt_keys(&self, keys: SetSender) -> Result<(), Error> {
        loop {
            keys.send(self.ca.jwt_keys()).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn main() {
    serve::<Full>("full", "1.2.3")
}
