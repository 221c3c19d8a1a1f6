// Package ra (experimental) is a registration authority: it decides which names a verified caller
// may have, and gets the certificate from a CA. Make an [Engine] with [New] and call
// [Engine.Prepare], which decides, and [Engine.Issue]; [Policy.Try] explains a decision without
// effect.
//
// A door (Kubernetes' pod certificates, Istio's CA API) verifies who asks and passes a
// [Request] with a [Subject] and a CSR. The names come from the [Policy] alone: never from
// the CSR, and never from what a pod or its node only claims. README.md draws the way of a
// request and how each state ends.
//
// # Goroutines
//
// An Engine has one goroutine that writes counted refusals each minute and, for each
// authority, one that starts calls once their time comes, one that moves the phases of its roots
// and one that listens for new ones. Each slot has a worker, which its first call starts and which
// makes its calls one after the other. A client that ignores its context keeps the worker and the
// slot, which counts toward its namespace's half of the slots. A
// caller waits in its own goroutine and may leave at any time. One lock guards all state of an
// Engine and is never held over foreign code: clients, tokens, the audit log, the store and
// hooks.
//
// # Bounds
//
// A CSR has 32 KiB and RSA keys of 8,192 bits at most, an attribute of a subject 253 bytes,
// a policy 1,000 rules. 10,000 requests wait for an authority, 8 of them for one holder.
// 200,000 holders and 20,000 namespaces are remembered; who is forgotten has a full budget
// again and counts as new. After a restart everybody does.
package ra
