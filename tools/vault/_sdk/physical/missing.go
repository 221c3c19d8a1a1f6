// Of HashiCorp Vault, under the Mozilla Public License 2.0.

package physical

// FencingHABackend is what the server asks for; inmem is none. See ../logical.
type FencingHABackend interface {
	HABackend

	RegisterActiveNodeLock(l Lock) error
}
