//! How the process meets its host: proto/provider/PROTOCOL.md.

use std::{
    env,
    fs::File,
    io::{self, Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    os::unix::net::UnixStream,
    panic, process, thread,
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::StreamExt;
use tonic::transport::Server;

use crate::{
    Authority,
    proto::{
        certificate_authority_server::CertificateAuthorityServer, jwt_svid_server::JwtSvidServer, provider_server::ProviderServer,
        renewal_info_server::RenewalInfoServer, revocation_source_server::RevocationSourceServer, root_source_server::RootSourceServer,
        root_watcher_server::RootWatcherServer, token_exchanger_server::TokenExchangerServer,
    },
    service::Service,
};

const COOKIE: (&str, &str) = ("COUNTERSIGN_PROVIDER", "b3f1c0de-6a52-4d0e-9c55-c0de5167ed01");
const VERSIONS: &str = "PLUGIN_PROTOCOL_VERSIONS";
const LIFELINE: &str = "COUNTERSIGN_LIFELINE_FD";
const CHANNEL: &str = "COUNTERSIGN_CHANNEL_FD";
const OTHERS: [&str; 3] = ["PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_CLIENT_CERT", "COUNTERSIGN_BINARY"];
const MAX_MESSAGE: usize = 4 << 20;
/// For the calls in flight at the end.
const GRACE: Duration = Duration::from_secs(5);
/// A host may cancel any number of calls; at its default of 20, h2 would end the only connection.
const MAX_RESET_STREAMS: usize = 10_000;

/// Serves an authority until the host goes away; does not return. What is printed reaches the
/// host's log. Call it first in `main`.
pub fn serve<A: Authority>(name: &'static str, version: &'static str) -> ! {
    if env::var(COOKIE.0).as_deref() != Ok(COOKIE.1) {
        fail(&format!(
            "{name} {version} is a Countersign provider: a host such as `countersign agent` starts it, not you. \
             To debug it, run `countersign provider debug {name}=PATH --insecure`."
        ));
    }
    if !env::var(VERSIONS).unwrap_or_default().split(',').any(|v| v == "1") {
        fail(&format!("no common protocol version: {name} {version} has version 1, which the host does not"));
    }
    let [lifeline, channel] = [LIFELINE, CHANNEL].map(|variable| {
        inherit(variable).unwrap_or_else(|| {
            fail(&format!("{name} {version} needs a Countersign host: this one passes no {variable}, as a stock go-plugin host does"))
        })
    });
    forget_environment();
    panic::set_hook(Box::new(|info| {
        // Its text may quote the request.
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        eprintln!("[ERROR] the provider panicked at {place}");
    }));
    let stdout = stdout_aside().unwrap_or_else(|e| fail(&format!("cannot move standard output: {e}")));
    thread::spawn(move || end_with(lifeline.into()));
    let runtime = tokio::runtime::Runtime::new().unwrap_or_else(|e| fail(&format!("cannot start: {e}")));
    match runtime.block_on(run::<A>(name, version, channel, stdout)) {
        Ok(()) => process::exit(0),
        Err(e) => fail(&format!("cannot serve: {e}")),
    }
}

async fn run<A: Authority>(
    name: &'static str,
    version: &'static str,
    channel: OwnedFd,
    mut stdout: File,
) -> Result<(), Box<dyn std::error::Error>> {
    let channel = UnixStream::from(channel);
    channel.set_nonblocking(true)?;
    let channel = tokio::net::UnixStream::from_std(channel)?;
    // ^C in a terminal reaches host and provider, and the host decides.
    let _interrupts = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;

    let service = Service::<A>::new(name, version);
    let (health, alive) = tonic_health::server::health_reporter();
    health.set_service_status("plugin", tonic_health::ServingStatus::Serving).await;
    let server = Server::builder()
        .http2_max_pending_accept_reset_streams(Some(MAX_RESET_STREAMS))
        .http2_max_local_error_reset_streams(Some(MAX_RESET_STREAMS))
        .add_service(alive)
        .add_service(ProviderServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(CertificateAuthorityServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(RootSourceServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(RootWatcherServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(TokenExchangerServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(RenewalInfoServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(RevocationSourceServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(JwtSvidServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE));
    // The one connection there is; only the host has its other end, so it needs no TLS.
    let connections = tokio_stream::once(Ok::<_, io::Error>(channel)).chain(tokio_stream::pending());
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.serve_with_incoming_shutdown(connections, async { _ = stopping.await }));
    writeln!(stdout, "1|1|unix|fd:4|grpc|")?;
    tokio::select! {
        ended = &mut serving => ended??,
        _ = terminated.recv() => {
            service.close();
            let _ = stop.send(());
            let _ = tokio::time::timeout(GRACE, serving).await;
        }
    }
    Ok(())
}

/// Takes over a descriptor that the host passed, and hides it from programs that the author starts.
fn inherit(variable: &str) -> Option<OwnedFd> {
    let number: i32 = env::var(variable).ok()?.parse().ok().filter(|n| (3..=9).contains(n))?;
    // SAFETY: the host made this descriptor for us and says so; nothing else has run that could
    // have opened or closed one of that number.
    let passed = unsafe { OwnedFd::from_raw_fd(number) };
    passed.try_clone().ok() // with CLOEXEC, and the one passed is closed
}

fn forget_environment() {
    for name in [COOKIE.0, VERSIONS, LIFELINE, CHANNEL].into_iter().chain(OTHERS) {
        // SAFETY: serve is called first in main, so no other thread reads the environment.
        unsafe { env::remove_var(name) };
    }
}

/// Only the handshake line belongs on standard output: prints go to the log.
fn stdout_aside() -> io::Result<File> {
    use std::os::fd::AsFd;
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr().as_fd())?;
    Ok(stdout.into())
}

/// Ends the process with the lifeline. Its start-up data has keys for other transports.
fn end_with(mut lifeline: File) {
    let mut buffer = [0; 4096];
    while lifeline.read(&mut buffer).is_ok_and(|n| n > 0) {}
    process::exit(0)
}

fn fail(text: &str) -> ! {
    eprintln!("{text}");
    process::exit(1)
}
