use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use crate::{Error, Secret, proto, text::clean_text};

const MAX_PEM: usize = 1 << 20;
const MAX_CSR: usize = 64 << 10;
const MAX_TOKEN: usize = 64 << 10;
const MAX_NAMES: usize = 1000;
const MAX_WORD: usize = 2048;
const MAX_LISTS: usize = 3 << 20;
const MAX_AUDIENCES: usize = 64;
const MAX_JWT: usize = 16 << 10;

/// A certificate signing request. One that comes again with the same id is a retry.
#[derive(Clone, Debug)]
pub struct SignRequest {
    /// A UUID.
    pub id: String,
    /// One PEM block CERTIFICATE REQUEST.
    pub csr: String,
    /// The SPIFFE ID that is asked for, or empty.
    pub subject_id: String,
    /// The DNS names that are asked for.
    pub dns_names: Vec<String>,
    /// The IP addresses that are asked for.
    pub ip_addresses: Vec<IpAddr>,
    /// The lifetime that is asked for; none: the CA's own.
    pub ttl: Option<Duration>,
    /// The workload's bearer credential, or empty.
    pub token: Secret,
    /// Who asks, as the host knows it, for the CA's audit log. Decide nothing by it.
    pub requester: String,
}

/// The answer to a [`SignRequest`], in PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The leaf first, then each one's issuer, never the root.
    pub chain: String,
    /// The roots that the chain leads to; empty if only [`crate::Authority::roots`] tells them.
    pub roots: String,
}

/// A token exchange (RFC 8693).
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TokenRequest {
    pub subject_token: Secret,
    pub subject_token_type: String,
    pub audience: String,
    pub resource: String,
    pub scopes: Vec<String>,
    pub requested_type: String,
}

/// The answer to a [`TokenRequest`].
#[derive(Clone, Debug)]
pub struct Token {
    /// The new token.
    pub access_token: Secret,
    /// A URN of RFC 8693, section 3, or empty.
    pub issued_type: String,
    /// When it ends; none: not known.
    pub expiry: Option<SystemTime>,
}

/// When a certificate had better be renewed (RFC 9773).
#[derive(Clone, Debug)]
pub struct RenewalWindow {
    /// The start; one in the past means now.
    pub start: SystemTime,
    /// The end, after the start.
    pub end: SystemTime,
    /// A URL that tells people why, or empty.
    pub explanation_url: String,
    /// When to ask again: 1 minute to 24 hours; none: 6 hours.
    pub retry_after: Option<Duration>,
}

/// A JWT-SVID to sign (SPIFFE's JWT-SVID standard).
#[derive(Clone, Debug)]
pub struct JwtRequest {
    /// A UUID; a retry has the same.
    pub id: String,
    /// The SPIFFE ID that is the claim sub.
    pub subject_id: String,
    /// The claim aud: these and no others.
    pub audiences: Vec<String>,
    /// The lifetime that is asked for; the CA may give less.
    pub ttl: Duration,
    /// The workload's bearer credential, or empty.
    pub token: Secret,
}

impl TryFrom<proto::CsrSignRequest> for SignRequest {
    type Error = Error;

    /// Refuses what no host of ours sends.
    fn try_from(m: proto::CsrSignRequest) -> Result<Self, Error> {
        check_token(&m.token)?;
        if m.dns_names.len() > MAX_NAMES || m.ip_addresses.len() > MAX_NAMES {
            return Err(Error::invalid(format!("the request has more than {MAX_NAMES} names")));
        }
        check_words(m.dns_names.iter().chain([&m.subject_id, &m.requester]), &m.token)?;
        let ip = |text: &String| text.parse().map_err(|_| Error::invalid("the request has an IP address that cannot be read"));
        let ttl = m.ttl.map(Duration::try_from).transpose().map_err(|_| Error::invalid("the lifetime in the request is negative"))?;
        Ok(SignRequest {
            id: m.request_id,
            csr: pem(m.csr, MAX_CSR, "the CSR")?,
            subject_id: m.subject_id,
            dns_names: m.dns_names,
            ip_addresses: m.ip_addresses.iter().map(ip).collect::<Result<_, _>>()?,
            ttl: ttl.filter(|t| !t.is_zero()),
            token: m.token.into(),
            requester: m.requester,
        })
    }
}

impl TryFrom<proto::ExchangeTokenRequest> for TokenRequest {
    type Error = Error;

    /// Refuses what no host of ours sends.
    fn try_from(m: proto::ExchangeTokenRequest) -> Result<Self, Error> {
        check_token(&m.subject_token)?;
        if m.subject_token.is_empty() || m.scopes.len() > MAX_NAMES {
            return Err(Error::invalid(format!("the request has no token, or more than {MAX_NAMES} scopes")));
        }
        let words = [&m.subject_token_type, &m.audience, &m.resource, &m.requested_token_type];
        check_words(m.scopes.iter().chain(words), &m.subject_token)?;
        Ok(TokenRequest {
            subject_token: m.subject_token.into(),
            subject_token_type: m.subject_token_type,
            audience: m.audience,
            resource: m.resource,
            scopes: m.scopes,
            requested_type: m.requested_token_type,
        })
    }
}

impl TryFrom<proto::SignJwtRequest> for JwtRequest {
    type Error = Error;

    /// Refuses what no host of ours sends.
    fn try_from(m: proto::SignJwtRequest) -> Result<Self, Error> {
        check_token(&m.token)?;
        if m.audiences.is_empty() || m.audiences.len() > MAX_AUDIENCES {
            return Err(Error::invalid(format!("the request has {} audiences, want 1 to {MAX_AUDIENCES}", m.audiences.len())));
        }
        check_words(m.audiences.iter().chain([&m.subject_id]), &m.token)?;
        let ttl = m.ttl.and_then(|ttl| Duration::try_from(ttl).ok()).filter(|ttl| !ttl.is_zero());
        match ttl {
            Some(ttl) if !m.subject_id.is_empty() => {
                Ok(JwtRequest { id: m.request_id, subject_id: m.subject_id, audiences: m.audiences, ttl, token: m.token.into() })
            }
            _ => Err(Error::invalid("the request has no SPIFFE ID or no lifetime")),
        }
    }
}

/// Returns the certificate that a request for advice is about.
pub(crate) fn leaf(m: proto::GetRenewalInfoRequest) -> Result<String, Error> {
    pem(m.certificate, MAX_CSR, "the certificate")
}

fn pem(bytes: Vec<u8>, most: usize, what: &str) -> Result<String, Error> {
    if bytes.is_empty() || bytes.len() > most {
        return Err(Error::invalid(format!("{what} has {} bytes, want 1 to {most}", bytes.len())));
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("{what} is not PEM")))
}

/// Refuses what could break out of a header.
fn check_token(token: &str) -> Result<(), Error> {
    if token.len() > MAX_TOKEN || token.contains(char::is_control) {
        return Err(Error::invalid(format!("the token has more than {MAX_TOKEN} bytes, or control characters")));
    }
    Ok(())
}

fn check_words<'a>(mut words: impl Iterator<Item = &'a String>, token: &str) -> Result<(), Error> {
    match words.find(|w| w.len() > MAX_WORD || w.contains(char::is_control)) {
        Some(word) => {
            let word = clean_text(word, &[token]);
            Err(Error::invalid(format!("\"{word}\" in the request does not have at most {MAX_WORD} printable bytes")))
        }
        None => Ok(()),
    }
}

pub(crate) fn certificate(reply: Certificate) -> Result<proto::CsrSignResponse, Error> {
    Ok(proto::CsrSignResponse { chain: bounded(reply.chain, 1)?, roots: bounded(reply.roots, 0)? })
}

/// Checks the size of a CA's certificates.
pub(crate) fn bounded(pem: String, least: usize) -> Result<Vec<u8>, Error> {
    sized(pem, "certificates", least, MAX_PEM)
}

/// Checks the size of a CA's revocation lists.
pub(crate) fn lists(pem: String) -> Result<proto::GetRevocationsResponse, Error> {
    Ok(proto::GetRevocationsResponse { lists: sized(pem, "revocation lists", 1, MAX_LISTS)? })
}

/// Checks the size of a CA's set of JWT keys.
pub(crate) fn keys(jwks: String) -> Result<Vec<u8>, Error> {
    sized(jwks, "JWT keys", 1, MAX_PEM)
}

/// Checks the size of a JWT-SVID.
pub(crate) fn jwt(svid: &Secret) -> Result<proto::SignJwtResponse, Error> {
    let svid = svid.reveal().to_owned();
    check_size(svid.len(), "JWT-SVIDs", 1, MAX_JWT)?;
    Ok(proto::SignJwtResponse { svid })
}

fn sized(text: String, what: &str, least: usize, most: usize) -> Result<Vec<u8>, Error> {
    check_size(text.len(), what, least, most).map(|()| text.into())
}

fn check_size(size: usize, what: &str, least: usize, most: usize) -> Result<(), Error> {
    if size < least || size > most {
        return Err(Error::internal(format!("the CA's {what} have {size} bytes, want {least} to {most}")));
    }
    Ok(())
}

pub(crate) fn exchanged(reply: Token) -> proto::ExchangeTokenResponse {
    proto::ExchangeTokenResponse {
        access_token: reply.access_token.reveal().to_owned(),
        issued_token_type: reply.issued_type,
        expiry: reply.expiry.map(Into::into),
    }
}

pub(crate) fn advice(reply: RenewalWindow) -> Result<proto::GetRenewalInfoResponse, Error> {
    if reply.start >= reply.end {
        return Err(Error::internal("the CA's renewal window does not end after its start"));
    }
    Ok(proto::GetRenewalInfoResponse {
        window_start: Some(reply.start.into()),
        window_end: Some(reply.end.into()),
        explanation_url: reply.explanation_url,
        retry_after: reply.retry_after.and_then(|d| d.try_into().ok()),
    })
}
