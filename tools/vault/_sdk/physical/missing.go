package physical

// FencingHABackend is what Vault 1.14.8 has of the sdk, as above: see logical.
type FencingHABackend interface {
	HABackend

	RegisterActiveNodeLock(l Lock) error
}
