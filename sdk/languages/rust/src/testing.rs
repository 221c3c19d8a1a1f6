//! A CA in memory or in a folder, to try a provider with before there is a real one.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, SanType, SerialNumber, SigningKey,
};
use serde_json::json;
use time::OffsetDateTime;

use crate::{Certificate, Error, JwtRequest, Secret, SignRequest};

const HOUR: Duration = Duration::from_secs(3600);
const MAX_ANSWERS: usize = 1024;

/// Signs what a request asks for, for one trust domain if it is given one.
#[derive(Debug)]
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    root: String,
    trust_domain: String,
    lists: String,
    jwt: KeyPair,
    answers: Mutex<HashMap<(String, String), String>>, // a retry gets the same certificate
}

impl Ca {
    /// Opens the CA whose root is root.pem in the folder, with root-key.pem; both are created if
    /// missing. Without a folder, it is in memory.
    ///
    /// # Errors
    /// [`crate::Reason::Invalid`] if the folder does not serve.
    pub fn open(dir: &str, trust_domain: &str) -> Result<Self, Error> {
        let opened = if dir.is_empty() { make_root() } else { stored(Path::new(dir)) };
        let (key, root) =
            opened.map_err(|e| Error::invalid(format!("the folder of the CA: {} with root-key.pem or root.pem", e.kind())))?;
        let issuer = Issuer::from_ca_cert_pem(&root, key).map_err(|_| Error::invalid("root.pem does not fit root-key.pem"))?;
        let lists = empty_list(&issuer).map_err(|_| Error::internal("the CA cannot sign a revocation list"))?;
        let jwt = KeyPair::generate().map_err(|_| Error::internal("the CA cannot make a key"))?;
        Ok(Ca { issuer, root, trust_domain: trust_domain.to_owned(), lists, jwt, answers: Mutex::default() })
    }

    /// The root, PEM.
    #[must_use]
    pub fn roots(&self) -> String {
        self.root.clone()
    }

    /// Has a request signed.
    ///
    /// # Errors
    /// [`crate::Reason::Invalid`] and [`crate::Reason::Denied`].
    pub fn sign(&self, request: &SignRequest) -> Result<Certificate, Error> {
        let id = (request.id.clone(), request.csr.clone());
        let mut answers = self.answers.lock().unwrap_or_else(|e| e.into_inner());
        if !answers.contains_key(&id) {
            if answers.len() >= MAX_ANSWERS {
                answers.clear();
            }
            answers.insert(id.clone(), self.issue(request)?);
        }
        Ok(Certificate { chain: answers[&id].clone(), roots: self.roots() })
    }

    /// A revocation list without entries, PEM, made at the start and valid for a week.
    #[must_use]
    pub fn revocations(&self) -> String {
        self.lists.clone()
    }

    /// The JWK set of the key that signs JWT-SVIDs.
    #[must_use]
    pub fn jwt_keys(&self) -> String {
        let point = self.jwt.public_key_raw(); // 4, x, y
        let [x, y] = [1, 33].map(|at| URL_SAFE_NO_PAD.encode(&point[at..at + 32]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "test", "use": "jwt-svid"}]}).to_string()
    }

    /// Signs a JWT-SVID with a key that is made at the start.
    ///
    /// # Errors
    /// [`crate::Reason::Denied`] outside the trust domain.
    pub fn sign_jwt(&self, request: &JwtRequest) -> Result<Secret, Error> {
        self.check_id(&request.subject_id)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = json!({"sub": request.subject_id, "aud": request.audiences, "iat": now, "exp": now + request.ttl.as_secs()});
        let text =
            [json!({"alg": "ES256", "kid": "test", "typ": "JWT"}), claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let der = self.jwt.sign(text.as_bytes()).map_err(|_| Error::internal("the CA cannot sign"))?;
        let signature = plain_signature(&der).ok_or_else(|| Error::internal("the CA's signature is not ECDSA"))?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)).into())
    }

    fn check_id(&self, id: &str) -> Result<(), Error> {
        let inside = if self.trust_domain.is_empty() { "spiffe://".to_owned() } else { format!("spiffe://{}/", self.trust_domain) };
        if !id.is_empty() && !id.starts_with(&inside) {
            return Err(Error::denied(format!("the SPIFFE ID is outside the trust domain {}", self.trust_domain)));
        }
        Ok(())
    }

    fn issue(&self, request: &SignRequest) -> Result<String, Error> {
        let csr = CertificateSigningRequestParams::from_pem(&request.csr)
            .map_err(|_| Error::invalid("the CSR is no PEM CERTIFICATE REQUEST that is signed by its own key"))?;
        let now = OffsetDateTime::now_utc();
        let mut leaf = CertificateParams::default();
        leaf.distinguished_name = DistinguishedName::new();
        leaf.subject_alt_names = self.names(request)?;
        leaf.serial_number = Some(serial().map_err(|_| Error::internal("no random numbers"))?);
        leaf.not_before = now - Duration::from_secs(60);
        leaf.not_after = now + request.ttl.unwrap_or(HOUR);
        leaf.is_ca = IsCa::ExplicitNoCa;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = leaf.signed_by(&csr.public_key, &self.issuer).map_err(|_| Error::invalid("the CSR's names cannot be certified"))?;
        Ok(signed.pem())
    }

    /// Returns the names of the request, which count, whatever the CSR says.
    fn names(&self, request: &SignRequest) -> Result<Vec<SanType>, Error> {
        let id = &request.subject_id;
        self.check_id(id)?;
        let text = |name: &String| name.as_str().try_into().map_err(|_| Error::invalid("a name of the request is not ASCII"));
        let mut names = Vec::new();
        if !id.is_empty() {
            names.push(SanType::URI(text(id)?));
        }
        for name in &request.dns_names {
            names.push(SanType::DnsName(text(name)?));
        }
        names.extend(request.ip_addresses.iter().map(|ip| SanType::IpAddress(*ip)));
        if names.is_empty() {
            return Err(Error::invalid("the request has no names"));
        }
        Ok(names)
    }
}

/// Returns a revocation list of a week without entries. Its number is the time.
fn empty_list(issuer: &Issuer<'_, KeyPair>) -> Result<String, rcgen::Error> {
    let now = OffsetDateTime::now_utc();
    let list = CertificateRevocationListParams {
        this_update: now - Duration::from_secs(60),
        next_update: now + 7 * 24 * HOUR,
        crl_number: SerialNumber::from(now.unix_timestamp().unsigned_abs()),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(issuer)?.pem()
}

/// Returns the r and s of an ECDSA signature in DER, 32 bytes each, as JWS has them.
fn plain_signature(der: &[u8]) -> Option<Vec<u8>> {
    let mut rest = der.get(2..)?;
    let mut out = Vec::new();
    for _ in 0..2 {
        let size = usize::from(*rest.get(1)?);
        let number = rest.get(2..2 + size)?;
        rest = &rest[2 + size..];
        let number = &number[size.saturating_sub(32)..];
        out.resize(out.len() + 32 - number.len(), 0);
        out.extend(number);
    }
    Some(out)
}

fn make_root() -> io::Result<(KeyPair, String)> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let mut root = CertificateParams::default();
    root.distinguished_name.push(DnType::CommonName, "CA for tests");
    root.serial_number = Some(serial()?);
    root.not_before = OffsetDateTime::now_utc() - HOUR;
    root.not_after = root.not_before + 24 * 3650 * HOUR;
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pem = root.self_signed(&key).map_err(io::Error::other)?.pem();
    Ok((key, pem))
}

fn stored(dir: &Path) -> io::Result<(KeyPair, String)> {
    let (key_file, root_file) = (dir.join("root-key.pem"), dir.join("root.pem"));
    if !root_file.try_exists()? {
        let (key, root) = make_root()?;
        // The key first, with mode 0600: an existing root always has its key.
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(key_file)?;
        file.write_all(key.serialize_pem().as_bytes())?;
        fs::write(root_file, &root)?;
        return Ok((key, root));
    }
    let key = KeyPair::from_pem(&fs::read_to_string(key_file)?).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((key, fs::read_to_string(root_file)?))
}

/// Returns a random number, positive and always of the same length.
fn serial() -> io::Result<SerialNumber> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
