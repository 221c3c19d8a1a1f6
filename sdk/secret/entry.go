package secret

import (
	"context"
	"errors"
	"time"
)

// Entry is the part of a record that a storage of many names reads without decrypting it.
type Entry struct {
	Name string
	// Renew and Ends are when to renew the certificate of the record and when it ends; zero
	// if the record holds an order only.
	Renew, Ends time.Time
}

// StorageStatus counts what a storage that machines share has found since it was opened. An object that is
// read again counts again.
type StorageStatus struct {
	// Foreign counts objects of other clients in the place of a record or a claim.
	Foreign int64 `json:"foreign"`
	// Damaged counts records that cannot be used, as another client has changed them.
	Damaged int64 `json:"damaged"`
}

// ErrClaimed means that another machine has claimed a name: see [Claim].
var ErrClaimed = errors.New("another machine has claimed the name")

// Claim is the right of one machine to order the certificate of a name and to change its record, among
// those that share a storage. The storage keeps the claim until Release. It is safe for concurrent use.
type Claim interface {
	// Held reports whether the claim is valid. It is not once another machine may have claimed the
	// name, as this one could not keep the claim for some time. It does not block.
	Held() bool
	// Made returns when the claim was made, by the clock of the storage, which is not that of the machine
	// that claimed; zero if the storage has none. It does not block.
	Made() time.Time
	// Release ends the claim, so that other machines can claim the name at once. If it fails, or the
	// claim is not held any more, the claim runs out. It is called once.
	Release(ctx context.Context) error
}
