package secret

import "time"

// Entry is the part of a record that a storage of many names reads without decrypting it.
type Entry struct {
	Name string
	// Renew and Ends are when to renew the certificate of the record and when it ends; zero
	// if the record holds an order only.
	Renew, Ends time.Time
}
