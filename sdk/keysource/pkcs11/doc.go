// Package pkcs11 (experimental) generates private keys that stay in a token (PKCS #11): an
// embedder passes the [secret.KeySource] from [Open] to [secret.Config]. Such keys serve
// crypto/tls in this process through sdk/tlsconfig; SDS and files need the key bytes and return
// an error.
//
// It requires cgo. Keys are token objects, so they survive a lost session; they are
// destroyed when the process no longer references them, when the [Token] is closed,
// and, after a crash, at the next [Open] with the same label.
package pkcs11
