// Package pkcs11 makes private keys in a token (PKCS #11) that they do not leave:
// [Open] returns the [secret.KeySource] for [secret.Config]. Such keys serve
// crypto/tls in this process, by sdk/tlsconfig; SDS and files need the bytes of a key,
// and say so.
//
// It needs cgo. The keys are objects of the token, so that they outlast a session that
// was lost; they are destroyed when nobody in the process holds them any more, when the
// [Token] is closed, and, after a crash, at the next [Open] with the same label.
package pkcs11
