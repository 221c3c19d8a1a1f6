//! A broker: it gets what the library's bindings of the Broker API return for a process, over mutual
//! TLS with SPIFFE IDs, for which the library has no connector.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use spiffe::broker_api::pb::spiffe::broker::api_client::ApiClient;
use spiffe::broker_api::pb::spiffe::broker::{
    FetchJwtsvidRequest, SubscribeToJwtBundlesRequest, SubscribeToX509BundlesRequest, SubscribeToX509svidRequest,
    WorkloadPidReference, WorkloadReference,
};
use spiffe::broker_api::SecurityHeader;
use spiffe::{SpiffeId, X509Bundle, X509Svid};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

/// The header that each call must have, or none, to see the call refused.
#[derive(Clone)]
pub enum Header {
    Right(SecurityHeader),
    Missing,
}

impl Interceptor for Header {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        match self {
            Header::Right(header) => header.call(request),
            Header::Missing => Ok(request),
        }
    }
}

/// Makes a call about a process and prints its replies as `reply HEX`, and as `end CODE HEX` how it
/// ended, with the status' details. The folder has the broker's chain.der and key.der and the
/// bundle.der that verifies the server, which has the SPIFFE ID `server`, or one below it where that
/// ends with a slash.
pub async fn run(socket: &str, folder: &str, server: &str, header: Header, call: &str, pid: &str, audience: Option<&str>) -> Result<(), Box<dyn Error>> {
    let channel = connect(socket.to_owned(), Arc::new(config(Path::new(folder), server)?)).await;
    let end = match channel {
        Ok(channel) => ask(ApiClient::with_interceptor(channel, header), call, WorkloadPidReference { pid: pid.parse()? }.into(), audience).await.err(),
        Err(error) => Some(Status::new(Code::Unavailable, error.to_string())),
    };
    let end = end.unwrap_or_else(|| Status::new(Code::Ok, ""));
    println!("end {} {}", end.code() as i32, super::hex(end.details()));
    Ok(())
}

type Client = ApiClient<tonic::service::interceptor::InterceptedService<Channel, Header>>;

async fn ask(mut client: Client, call: &str, reference: WorkloadReference, audience: Option<&str>) -> Result<(), Status> {
    let reference = Some(reference);
    match call {
        "x509" => follow(client.subscribe_to_x509svid(SubscribeToX509svidRequest { reference }).await?.into_inner()).await,
        "x509-bundles" => follow(client.subscribe_to_x509_bundles(SubscribeToX509BundlesRequest { reference }).await?.into_inner()).await,
        "jwt-bundles" => follow(client.subscribe_to_jwt_bundles(SubscribeToJwtBundlesRequest { reference }).await?.into_inner()).await,
        "jwt" => {
            let audience = audience.into_iter().map(str::to_owned).collect();
            let request = FetchJwtsvidRequest { reference, audience, spiffe_id: String::new() };
            tell(client.fetch_jwtsvid(request).await?.get_ref());
            Ok(())
        }
        _ => Err(Status::unimplemented("no such call")),
    }
}

async fn follow<M: Message>(mut replies: Streaming<M>) -> Result<(), Status> {
    while let Some(reply) = replies.message().await? {
        tell(&reply);
    }
    Ok(())
}

fn tell<M: Message>(reply: &M) {
    println!("reply {}", super::hex(&reply.encode_to_vec()));
}

async fn connect(socket: String, config: Arc<ClientConfig>) -> Result<Channel, tonic::transport::Error> {
    let dial = move |_: Uri| {
        let (socket, config) = (socket.clone(), config.clone());
        async move {
            let stream = UnixStream::connect(socket).await?;
            let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?; // not verified
            Ok::<_, std::io::Error>(TokioIo::new(TlsConnector::from(config).connect(name, stream).await?))
        }
    };
    Endpoint::from_static("http://localhost").connect_with_connector(tower::service_fn(dial)).await
}

fn config(folder: &Path, server: &str) -> Result<ClientConfig, Box<dyn Error>> {
    let read = |name| std::fs::read(folder.join(name));
    let own = X509Svid::parse_from_der(&read("chain.der")?, &read("key.der")?)?;
    let chain = own.cert_chain().iter().map(|cert| CertificateDer::from(cert.as_bytes().to_vec())).collect();
    let key = PrivateKeyDer::try_from(own.private_key().as_bytes().to_vec())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let domain = SpiffeId::new(server.trim_end_matches('/'))?.trust_domain().clone();
    let bundle = X509Bundle::parse_from_der(domain, &read("bundle.der")?)?;
    let verifier = Verifier { server: server.to_owned(), bundle, provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Verifies a server by its SPIFFE ID and the bundle of its trust domain (X509-SVID, section 5).
#[derive(Debug)]
struct Verifier {
    server: String,
    bundle: X509Bundle,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn accepts(&self, names: &[&str]) -> bool {
        match names {
            [name] => *name == self.server || self.server.ends_with('/') && name.starts_with(&self.server),
            _ => false,
        }
    }

    fn verify_chain(&self, leaf: &webpki::EndEntityCert<'_>, intermediates: &[CertificateDer<'_>], now: UnixTime) -> Result<(), webpki::Error> {
        let roots: Vec<_> = self.bundle.authorities().iter().map(|root| CertificateDer::from(root.as_bytes())).collect();
        let anchors = roots.iter().map(webpki::anchor_from_trusted_cert).collect::<Result<Vec<TrustAnchor<'_>>, _>>()?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        leaf.verify_for_usage(algorithms, &anchors, intermediates, now, webpki::KeyUsage::server_auth(), None, None)?;
        Ok(())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let refuse = |error: webpki::Error| rustls::Error::General(error.to_string());
        let leaf = webpki::EndEntityCert::try_from(leaf).map_err(refuse)?;
        self.verify_chain(&leaf, intermediates, now).map_err(refuse)?;
        let names: Vec<_> = leaf.valid_uri_names().collect();
        if !self.accepts(&names) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(&self, message: &[u8], cert: &CertificateDer<'_>, signed: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(&self, message: &[u8], cert: &CertificateDer<'_>, signed: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
