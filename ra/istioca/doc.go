// Package istioca is the door of a registration authority for meshes: it serves Istio's CA
// API (istio.v1.auth.IstioCertificateService) to stock sidecars, gateways and node proxies
// such as ztunnel. A program makes an [ra.Engine] with [Doors], calls [New], then
// [Server.Run] with its listener.
//
//	metadata ─▶ token ─▶ who asks ─▶ message ─▶ identity ─▶ policy, queue, CA ─▶ reply
//	            Tokens   Pods.Alive             Pods.Runs    Issuer
//
// A caller is known by its token, a service account's ([authn/tokenreview]) or an OpenID Connect
// issuer's ([authn/jwt]). The policy decides on the names; those in the CSR grant nothing.
//
// Machines that [Config.Renewals] lists may renew without a token, by the certificate that they
// hold. One that was stolen would renew itself for ever, so a certificate must be in a chain that a
// token began, which has a bound and is written down for all replicas. A pod's never is, nor
// is one that a node proxy fetched. A token that fails does not fall back to a certificate.
//
// A node proxy asks for the service accounts of pods on its node (ImpersonatedIdentity). The
// proxy must be one of [Config.NodeProxies], by a token that an API server reviewed and that
// is bound to a live pod; a live pod of the service account must be bound to the same node of
// the same cluster; and the policy must give that service account exactly the name that the
// proxy asks for.
//
// # Answers
//
// The reply has the leaf and each intermediate as one element, and then one element with all
// roots, as clients take the last element alone for their roots. The code of a refusal:
//
//	Unauthenticated     the token is invalid, or its pod is gone
//	PermissionDenied    no rule grants it, or the CA refuses; the message has the reason
//	InvalidArgument     the CSR or another part of the request is wrong
//	ResourceExhausted   a quota, a budget or a limit; with RetryInfo where that is known
//	Unavailable         the CA, an API server or this server cannot answer now
//
// Clients read no RetryInfo: a sidecar's agent gives up after five tries within seconds, and
// ztunnel comes back with a new key. So what may pass is not refused at once: the call is held
// for [Times.Hold], and asks again meanwhile. The engine keeps the place in the queue by who
// asks, not by key, also between calls.
//
// # Goroutines
//
// Each call has the goroutine of its stream, which owns the state of the call; it
// authenticates before it reads the message, which takes one more. Run has one that accepts
// connections. State that calls share is in the engine, the authenticators, Pods and the counts
// of [Limits], which are safe for concurrent use.
//
// [authn/tokenreview]: https://pkg.go.dev/github.com/countersign-dev/countersign/sdk/authn/tokenreview
// [authn/jwt]: https://pkg.go.dev/github.com/countersign-dev/countersign/sdk/authn/jwt
package istioca
