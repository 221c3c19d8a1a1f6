//! A workload that has its identity by the library spiffe, from the socket that is the first
//! argument. It prints each X.509 context as a line of JSON, with DER in hex; with a second
//! argument, it prints how a call without the security header ends.

use std::error::Error;

use spiffe::X509Source;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::Request;
use tonic_prost::ProstCodec;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("name a socket")?;
    if std::env::args().count() > 2 {
        return refused(socket).await;
    }
    let source = X509Source::builder().endpoint(&socket).build().await?;
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
    let roots: Vec<_> = bundle.authorities().iter().map(|root| format!("\"{}\"", hex(root.as_bytes()))).collect();
    println!("{{\"id\":\"{}\",\"leaf\":\"{}\",\"roots\":[{}]}}", svid.spiffe_id(), hex(svid.leaf().as_bytes()), roots.join(","));
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn refused(socket: String) -> Result<(), Box<dyn Error>> {
    let mut client = tonic::client::Grpc::new(Endpoint::from_shared(socket)?.connect().await?);
    client.ready().await?;
    let path = PathAndQuery::from_static("/SpiffeWorkloadAPI/FetchX509SVID");
    let answer = client.server_streaming(Request::new(()), path, ProstCodec::<(), ()>::default()).await;
    let end = match answer {
        Ok(stream) => stream.into_inner().message().await.err(),
        Err(status) => Some(status),
    };
    println!("{{\"code\":{}}}", end.map_or(0, |status| status.code() as i32));
    Ok(())
}
