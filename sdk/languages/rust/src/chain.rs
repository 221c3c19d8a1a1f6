//! The certificates of a CA in the order of a reply.

use std::collections::VecDeque;

use x509_parser::{
    certification_request::X509CertificationRequest,
    pem::Pem,
    prelude::{FromDer, X509Certificate},
};

use crate::{Certificate, Error};

const MAX_BYTES: usize = 1 << 20;
const MAX_CERTIFICATES: usize = 64;
const MAX_LENGTH: usize = 10;
const MAX_CHECKS: usize = 256;

/// Finds the leaf with the key of a CSR in PEM, the intermediates that lead from it to a root by
/// their signatures, and the roots. The text has 64 certificates and 1 MiB at most.
///
/// # Errors
/// [`crate::Reason::Internal`], and [`crate::Reason::Invalid`] if the CSR cannot be read.
pub fn certificate_of(csr: &str, bag: &str) -> Result<Certificate, Error> {
    let unreadable = || Error::invalid("the CSR cannot be read");
    let csr = Pem::iter_from_buffer(csr.as_bytes()).next().and_then(Result::ok).ok_or_else(unreadable)?;
    let (_, request) = X509CertificationRequest::from_der(&csr.contents).map_err(|_| unreadable())?;
    let key = request.certification_request_info.subject_pki.raw;
    let blocks = blocks(bag)?;
    let certificates = parse(&blocks)?;
    let leaf = (0..certificates.len())
        .filter(|&at| !certificates[at].is_ca() && certificates[at].public_key().raw == key)
        .max_by_key(|&at| certificates[at].validity().not_after.timestamp())
        .ok_or_else(|| Error::internal(format!("none of the CA's {} certificates has the key of the CSR", certificates.len())))?;
    let (way, roots) = climb(leaf, &certificates)?;
    Ok(Certificate { chain: encode(&blocks, &way), roots: encode(&blocks, &roots) })
}

/// Returns the self-signed CA certificates in PEM.
///
/// # Errors
/// [`crate::Reason::Internal`]; a text without a root is one.
pub fn roots_of(bag: &str) -> Result<String, Error> {
    let blocks = blocks(bag)?;
    let certificates = parse(&blocks)?;
    let roots: Vec<_> = (0..certificates.len()).filter(|&at| is_root(&certificates[at])).collect();
    if roots.is_empty() {
        return Err(Error::internal(format!("none of the CA's {} certificates is a root", certificates.len())));
    }
    Ok(encode(&blocks, &roots))
}

type Way = Vec<usize>;

/// Goes breadth first, so that the first root ends the shortest way.
fn climb(leaf: usize, certificates: &[X509Certificate<'_>]) -> Result<(Way, Way), Error> {
    let mut seen = vec![leaf];
    let (mut way, mut longest, mut roots, mut checks) = (None, vec![leaf], Vec::new(), 0);
    let mut ways = VecDeque::from([vec![leaf]]);
    while let Some(at) = ways.pop_front() {
        if at.len() > longest.len() {
            longest.clone_from(&at);
        }
        let last = &certificates[at[at.len() - 1]];
        for (i, issuer) in certificates.iter().enumerate() {
            if seen.contains(&i) || !issuer.is_ca() || issuer.subject().as_raw() != last.issuer().as_raw() {
                continue;
            }
            checks += 1;
            if checks > MAX_CHECKS {
                return Err(Error::internal("the CA's certificates have too many ways to a root"));
            }
            if last.verify_signature(Some(issuer.public_key())).is_err() {
                continue;
            }
            seen.push(i);
            if is_root(issuer) {
                roots.push(i);
                way.get_or_insert_with(|| at.clone());
            } else if at.len() < MAX_LENGTH {
                ways.push_back([&at[..], &[i]].concat());
            }
        }
    }
    Ok((way.unwrap_or(longest), roots))
}

fn is_root(certificate: &X509Certificate<'_>) -> bool {
    certificate.is_ca()
        && certificate.subject().as_raw() == certificate.issuer().as_raw()
        && certificate.verify_signature(Some(certificate.public_key())).is_ok()
}

/// Returns each certificate once.
fn blocks(bag: &str) -> Result<Vec<Pem>, Error> {
    if bag.len() > MAX_BYTES {
        return Err(Error::internal(format!("the CA's certificates have more than {MAX_BYTES} bytes")));
    }
    let mut blocks: Vec<Pem> = Vec::new();
    for block in Pem::iter_from_buffer(bag.as_bytes()) {
        let block = block.map_err(|_| Error::internal("the CA's certificates are not PEM"))?;
        if block.label == "CERTIFICATE" && !blocks.iter().any(|b| b.contents == block.contents) {
            blocks.push(block);
        }
    }
    if blocks.len() > MAX_CERTIFICATES {
        return Err(Error::internal(format!("the CA returned more than {MAX_CERTIFICATES} certificates")));
    }
    Ok(blocks)
}

fn parse(blocks: &[Pem]) -> Result<Vec<X509Certificate<'_>>, Error> {
    let unreadable = |_| Error::internal("the CA returned a certificate that cannot be read");
    blocks.iter().map(|block| block.parse_x509().map_err(unreadable)).collect()
}

fn encode(blocks: &[Pem], which: &[usize]) -> String {
    which.iter().map(|&at| pem::encode(&pem::Pem::new("CERTIFICATE", blocks[at].contents.clone()))).collect()
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;
    use crate::Reason;

    fn params(name: &str, ca: bool) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = if ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
        params
    }

    #[test]
    fn bag_is_put_in_order() -> Result<(), rcgen::Error> {
        let keys: Vec<_> = (0..4).map(|_| KeyPair::generate()).collect::<Result<_, _>>()?;
        let root = params("root", true).self_signed(&keys[0])?.pem();
        let stranger = params("root", true).self_signed(&keys[3])?.pem(); // of the same name
        let by_root = Issuer::new(params("root", true), &keys[0]);
        let intermediate = params("intermediate", true).signed_by(&keys[1], &by_root)?.pem();
        let csr = params("leaf", false).serialize_request(&keys[2])?.pem()?;
        let request = CertificateSigningRequestParams::from_pem(&csr)?;
        let leaf = params("leaf", false).signed_by(&request.public_key, &Issuer::new(params("intermediate", true), &keys[1]))?.pem();
        let plain = |text: &str| text.replace(['\r', '\n'], "");

        let found = certificate_of(&csr, &[&stranger[..], &root, &leaf, &intermediate, &leaf].concat()).expect("a chain");
        assert_eq!(plain(&found.chain), plain(&(leaf.clone() + &intermediate)));
        assert_eq!(plain(&found.roots), plain(&root));
        let found = certificate_of(&csr, &[&intermediate[..], &leaf].concat()).expect("a chain");
        assert_eq!((plain(&found.chain), found.roots), (plain(&(leaf + &intermediate)), String::new()));
        assert_eq!(plain(&roots_of(&[&intermediate[..], &root].concat()).expect("roots")), plain(&root));
        for bag in [&intermediate[..], ""] {
            assert_eq!(certificate_of(&csr, bag).err().map(|e| e.reason()), Some(Reason::Internal));
            assert_eq!(roots_of(bag).err().map(|e| e.reason()), Some(Reason::Internal));
        }
        assert_eq!(certificate_of("", &root).err().map(|e| e.reason()), Some(Reason::Invalid));
        Ok(())
    }
}
