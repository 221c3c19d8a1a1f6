//! A workload that has its identity by the library spiffe, from the socket that is the first
//! argument. It prints lines of JSON, as client.py does.

mod broker;

use std::error::Error;
use std::time::Duration;

use broker::Header;
use spiffe::broker_api::SecurityHeader;
use spiffe::bundle::BundleSource;
use spiffe::jwt_source::JwtSourceError;
use spiffe::{JwtSource, JwtSvid, WorkloadApiClient, WorkloadApiError, X509Source};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::Request;
use tonic_prost::ProstCodec;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [socket] => follow(socket).await,
        [socket, "jwt", audience] => follow_jwt(socket, audience).await,
        [socket, "refused", call] => refused(socket, call).await,
        [socket, "broker", folder, server, "without-header", call, pid] => broker::run(socket, folder, server, Header::Missing, call, pid, None).await,
        [socket, "broker", folder, server, call, pid] => broker::run(socket, folder, server, Header::Right(SecurityHeader::new()), call, pid, None).await,
        [socket, "broker", folder, server, call, pid, audience] => broker::run(socket, folder, server, Header::Right(SecurityHeader::new()), call, pid, Some(audience)).await,
        _ => Err("name a socket".into()),
    }
}

async fn follow(socket: &str) -> Result<(), Box<dyn Error>> {
    let source = X509Source::builder().endpoint(socket).build().await?;
    let mut updates = source.updated();
    loop {
        tell(&source)?;
        updates.changed().await?;
    }
}

fn tell(source: &X509Source) -> Result<(), Box<dyn Error>> {
    let context = source.x509_context()?;
    let svid = context.default_svid().ok_or("no SVID")?;
    let bundle = context.bundle_set().get(svid.spiffe_id().trust_domain()).ok_or("no bundle")?;
    let roots = list(bundle.authorities().iter().map(|root| hex(root.as_bytes())));
    println!("{{\"id\":\"{}\",\"leaf\":\"{}\",\"roots\":{roots}}}", svid.spiffe_id(), hex(svid.leaf().as_bytes()));
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes strings that need no escapes.
fn list(items: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    format!("[{}]", items.join(","))
}

async fn follow_jwt(socket: &str, audience: &str) -> Result<(), Box<dyn Error>> {
    let source = JwtSource::builder().endpoint(socket).build().await?;
    let agent = WorkloadApiClient::connect_to(socket).await?;
    let mut first = None;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        match source.fetch_jwt_svid(&[audience]).await {
            Ok(svid) => tell_jwt(&source, &agent, &svid, first.get_or_insert_with(|| svid.clone()), audience).await?,
            Err(error) => println!("{{\"code\":{}}}", code(&error)),
        }
    }
}

/// Returns 7 for PermissionDenied; the agent may also be away.
fn code(error: &JwtSourceError) -> i32 {
    match error {
        JwtSourceError::FetchJwtSvid(WorkloadApiError::PermissionDenied(_)) => 7,
        _ => 14,
    }
}

async fn tell_jwt(source: &JwtSource, agent: &WorkloadApiClient, svid: &JwtSvid, first: &JwtSvid, audience: &str) -> Result<(), Box<dyn Error>> {
    let bundle = source.bundle_for_trust_domain(svid.spiffe_id().trust_domain())?.ok_or("no bundle")?;
    println!(
        "{{\"id\":\"{}\",\"key\":\"{}\",\"keys\":{},\"takers\":{},\"takers_of_first\":{},\"takers_for_another\":{}}}",
        svid.spiffe_id(),
        svid.key_id(),
        list(bundle.jwt_authorities().map(|key| key.key_id())),
        list(takers(source, agent, svid, audience).await),
        list(takers(source, agent, first, audience).await),
        list(takers(source, agent, svid, "another").await),
    );
    Ok(())
}

async fn takers(source: &JwtSource, agent: &WorkloadApiClient, svid: &JwtSvid, audience: &str) -> Vec<&'static str> {
    let mut takers = Vec::new();
    if JwtSvid::parse_and_validate(svid.token(), source, &[audience]).is_ok() {
        takers.push("library");
    }
    if agent.validate_jwt_token(audience, svid.token()).await.is_ok() {
        takers.push("agent");
    }
    takers
}

async fn refused(socket: &str, call: &str) -> Result<(), Box<dyn Error>> {
    let mut client = tonic::client::Grpc::new(Endpoint::from_shared(socket.to_owned())?.connect().await?);
    client.ready().await?;
    let path = PathAndQuery::try_from(format!("/SpiffeWorkloadAPI/{call}"))?;
    let answer = client.server_streaming(Request::new(()), path, ProstCodec::<(), ()>::default()).await;
    let end = match answer {
        Ok(stream) => stream.into_inner().message().await.err(),
        Err(status) => Some(status),
    };
    println!("{{\"code\":{}}}", end.map_or(0, |status| status.code() as i32));
    Ok(())
}
