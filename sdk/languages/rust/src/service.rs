//! The services of one provider, over its current authority.

use std::{future::Future, sync::Arc, sync::RwLock};

use serde_json::Value;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::{JoinError, JoinSet},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::{
    Ability, Authority, Error, NameMatch, Reason, SetSender,
    authority::missing,
    messages,
    proto::{self, diagnostic::Severity},
    settings,
    text::clean_text,
};

type Answer<T> = Result<Response<T>, Status>;

/// An authority; the other end of `replaced` is gone when new settings have replaced it.
struct Current<A> {
    authority: A,
    replaced: watch::Receiver<()>,
}

struct Inner<A> {
    name: &'static str,
    version: &'static str,
    schema: Value,
    configuring: Mutex<()>,
    current: RwLock<Option<(Arc<Current<A>>, watch::Sender<()>)>>,
}

pub(crate) struct Service<A>(Arc<Inner<A>>);

impl<A> Clone for Service<A> {
    fn clone(&self) -> Self {
        Service(self.0.clone())
    }
}

impl<A: Authority> Service<A> {
    pub(crate) fn new(name: &'static str, version: &'static str) -> Self {
        let schema = settings::schema_of::<A::Settings>();
        Service(Arc::new(Inner { name, version, schema, configuring: Mutex::new(()), current: RwLock::new(None) }))
    }

    /// Drops the authority after its calls.
    pub(crate) fn close(&self) {
        self.install(None);
    }

    fn install(&self, next: Option<A>) {
        let next = next.map(|authority| {
            let (sender, replaced) = watch::channel(());
            (Arc::new(Current { authority, replaced }), sender)
        });
        let old = std::mem::replace(&mut *self.0.current.write().unwrap_or_else(|e| e.into_inner()), next);
        drop(old); // without the lock: it is the author's code
    }

    fn current(&self, needed: Option<Ability>) -> Result<Arc<Current<A>>, Error> {
        if needed.is_some_and(|a| !A::ABILITIES.contains(&a)) {
            return Err(missing());
        }
        let current = self.0.current.read().unwrap_or_else(|e| e.into_inner());
        let configured = current.as_ref().map(|(current, _)| current.clone());
        configured.ok_or_else(|| Error::new(Reason::NotConfigured, "the provider is not configured yet"))
    }

    /// Returns the settings, or all that is wrong with them.
    fn read(&self, fields: Option<prost_types::Struct>) -> Result<A::Settings, Vec<Error>> {
        let read: A::Settings = settings::read(&self.0.schema, settings::plain(fields.unwrap_or_default()))?;
        A::validate(&read).map_err(|fault| vec![fault])?;
        Ok(read)
    }
}

/// Runs an author's code in a task, which ends with the call: a panic there is an error here.
async fn guarded<T: Send + 'static>(code: impl Future<Output = Result<T, Error>> + Send + 'static) -> Result<T, Error> {
    let mut task = JoinSet::new();
    task.spawn(code);
    task.join_next().await.unwrap_or_else(|| Ok(Err(missing()))).unwrap_or_else(|e| Err(bug(&e)))
}

fn bug(_: &JoinError) -> Error {
    Error::internal("the provider panicked; its log says where")
}

fn answer<T>(result: Result<T, Error>, token: &str) -> Answer<T> {
    result.map(Response::new).map_err(|e| e.status(token))
}

fn diagnostic(fault: &Error) -> proto::Diagnostic {
    proto::Diagnostic {
        severity: Severity::Error.into(),
        summary: clean_text(&fault.to_string(), &[]),
        detail: String::new(),
        pointer: fault.pointer().to_owned(),
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::provider_server::Provider for Service<A> {
    async fn get_metadata(&self, _: Request<proto::GetMetadataRequest>) -> Answer<proto::GetMetadataResponse> {
        let abilities = A::ABILITIES.iter().map(|ability| match ability {
            Ability::Roots => proto::Ability::RootSource,
            Ability::WatchRoots => proto::Ability::RootWatcher,
            Ability::ExchangeToken => proto::Ability::TokenExchanger,
            Ability::NamesFromRequest => proto::Ability::NamesFromRequest,
            Ability::RenewalInfo => proto::Ability::RenewalInfo,
            Ability::Revocations => proto::Ability::RevocationSource,
            Ability::Jwt => proto::Ability::JwtSvid,
        });
        let name_match = match A::NAME_MATCH {
            NameMatch::Exact => proto::NameMatch::Exact,
            NameMatch::TrustDomain => proto::NameMatch::TrustDomain,
            NameMatch::Any => proto::NameMatch::Any,
        };
        Ok(Response::new(proto::GetMetadataResponse {
            name: self.0.name.into(),
            version: self.0.version.into(),
            abilities: std::iter::once(proto::Ability::CertificateAuthority).chain(abilities).map(Into::into).collect(),
            settings_schema: self.0.schema.to_string(),
            fixed_lifetime: A::FIXED_LIFETIME,
            name_match: name_match.into(),
            needs_token: A::NEEDS_TOKEN,
            csr_sign_stream: false,
        }))
    }

    async fn validate(&self, request: Request<proto::ValidateRequest>) -> Answer<proto::ValidateResponse> {
        let request = request.into_inner();
        let this = self.clone();
        let read = guarded(async move { Ok(this.read(request.settings)) }).await.map_err(|e| e.status(""))?;
        let mut out = proto::ValidateResponse::default();
        match read {
            Err(faults) => out.diagnostics = faults.iter().map(diagnostic).collect(),
            Ok(settings) if request.online => {
                let asked = guarded(async { Ok(A::validate_online(settings).await) }).await.map_err(|e| e.status(""))?;
                out.online = asked.is_some();
                out.diagnostics = asked.and_then(Result::err).iter().map(diagnostic).collect();
            }
            Ok(_) => {}
        }
        Ok(Response::new(out))
    }

    async fn configure(&self, request: Request<proto::ConfigureRequest>) -> Answer<proto::ConfigureResponse> {
        let _one = self.0.configuring.lock().await;
        let this = self.clone();
        let opened = guarded(async move {
            let settings = this.read(request.into_inner().settings).map_err(|faults| {
                let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
                Error::invalid(texts.join("; "))
            })?;
            A::open(settings).await
        });
        // Replaced only on success: after a failure the earlier settings stay.
        let opened = opened.await.map_err(|e| e.status(""))?;
        self.install(Some(opened));
        Ok(Response::new(proto::ConfigureResponse {}))
    }

    async fn ready(&self, _: Request<proto::ReadyRequest>) -> Answer<proto::ReadyResponse> {
        answer(self.current(None).map(|_| proto::ReadyResponse {}), "")
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::certificate_authority_server::CertificateAuthority for Service<A> {
    async fn csr_sign(&self, request: Request<proto::CsrSignRequest>) -> Answer<proto::CsrSignResponse> {
        let request = request.into_inner();
        let (token, current) = (request.token.clone(), self.current(None));
        let signed = guarded(async move { current?.authority.sign(request.try_into()?).await });
        answer(signed.await.and_then(messages::certificate), &token)
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::root_source_server::RootSource for Service<A> {
    async fn get_roots(&self, _: Request<proto::GetRootsRequest>) -> Answer<proto::GetRootsResponse> {
        let current = self.current(Some(Ability::Roots));
        let roots = guarded(async move { current?.authority.roots().await }).await;
        answer(roots.and_then(|pem| Ok(proto::GetRootsResponse { roots: messages::bounded(pem, 1)? })), "")
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::token_exchanger_server::TokenExchanger for Service<A> {
    async fn exchange_token(&self, request: Request<proto::ExchangeTokenRequest>) -> Answer<proto::ExchangeTokenResponse> {
        let request = request.into_inner();
        let (token, current) = (request.subject_token.clone(), self.current(Some(Ability::ExchangeToken)));
        let exchanged = guarded(async move { current?.authority.exchange_token(request.try_into()?).await });
        answer(exchanged.await.map(messages::exchanged), &token)
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::renewal_info_server::RenewalInfo for Service<A> {
    async fn get_renewal_info(&self, request: Request<proto::GetRenewalInfoRequest>) -> Answer<proto::GetRenewalInfoResponse> {
        let current = self.current(Some(Ability::RenewalInfo));
        let advice = guarded(async move { current?.authority.renewal_info(messages::leaf(request.into_inner())?).await });
        answer(advice.await.and_then(messages::advice), "")
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::revocation_source_server::RevocationSource for Service<A> {
    async fn get_revocations(&self, _: Request<proto::GetRevocationsRequest>) -> Answer<proto::GetRevocationsResponse> {
        let current = self.current(Some(Ability::Revocations));
        let lists = guarded(async move { current?.authority.revocations().await });
        answer(lists.await.and_then(messages::lists), "")
    }
}

type Stream<M> = ReceiverStream<Result<M, Status>>;

#[tonic::async_trait]
impl<A: Authority> proto::jwt_svid_server::JwtSvid for Service<A> {
    type WatchJwtKeysStream = Stream<proto::WatchJwtKeysResponse>;

    async fn sign_jwt(&self, request: Request<proto::SignJwtRequest>) -> Answer<proto::SignJwtResponse> {
        let request = request.into_inner();
        let (token, current) = (request.token.clone(), self.current(Some(Ability::Jwt)));
        let signed = guarded(async move { current?.authority.sign_jwt(request.try_into()?).await });
        answer(signed.await.and_then(|svid| messages::jwt(&svid)), &token)
    }

    async fn watch_jwt_keys(&self, _: Request<proto::WatchJwtKeysRequest>) -> Answer<Self::WatchJwtKeysStream> {
        let watch = |current: Arc<Current<A>>, keys| async move { current.authority.watch_jwt_keys(keys).await };
        self.watch(Ability::Jwt, watch, |jwks| Ok(proto::WatchJwtKeysResponse { jwks: messages::keys(jwks)? }))
    }
}

#[tonic::async_trait]
impl<A: Authority> proto::root_watcher_server::RootWatcher for Service<A> {
    type WatchRootsStream = Stream<proto::WatchRootsResponse>;

    async fn watch_roots(&self, _: Request<proto::WatchRootsRequest>) -> Answer<Self::WatchRootsStream> {
        let watch = |current: Arc<Current<A>>, roots| async move { current.authority.watch_roots(roots).await };
        self.watch(Ability::WatchRoots, watch, |pem| Ok(proto::WatchRootsResponse { roots: messages::bounded(pem, 1)? }))
    }
}

impl<A: Authority> Service<A> {
    /// Sends the messages of each changed set that an author's method sends, until new settings
    /// replace the authority.
    fn watch<M, W>(
        &self,
        ability: Ability,
        method: impl FnOnce(Arc<Current<A>>, SetSender) -> W,
        encode: impl Fn(String) -> Result<M, Error> + Send + 'static,
    ) -> Answer<Stream<M>>
    where
        M: Send + 'static,
        W: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let current = self.current(Some(ability)).map_err(|e| e.status(""))?;
        let (out, stream) = mpsc::channel(1);
        let (sender, sets) = mpsc::channel(1);
        let told = method(current.clone(), SetSender(sender));
        let signal = current.replaced.clone();
        drop(current);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = relay(told, sets, encode, &out) => ended,
                () = replaced(signal) => Err(Error::unavailable("the settings changed: watch again")),
                () = out.closed() => return,
            };
            if let Err(e) = ended {
                let _ = out.send(Err(e.status(""))).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

async fn replaced(mut signal: watch::Receiver<()>) {
    while signal.changed().await.is_ok() {}
}

/// Sends each changed set, as a message.
async fn relay<M>(
    method: impl Future<Output = Result<(), Error>> + Send + 'static,
    mut sets: mpsc::Receiver<String>,
    encode: impl Fn(String) -> Result<M, Error>,
    out: &mpsc::Sender<Result<M, Status>>,
) -> Result<(), Error> {
    let mut watch = JoinSet::new();
    watch.spawn(method);
    let mut sent = String::new();
    while let Some(set) = sets.recv().await {
        if set != sent {
            if out.send(Ok(encode(set.clone())?)).await.is_err() {
                return Ok(());
            }
            sent = set;
        }
    }
    watch.join_next().await.unwrap_or(Ok(Ok(()))).unwrap_or_else(|e| Err(bug(&e)))
}
