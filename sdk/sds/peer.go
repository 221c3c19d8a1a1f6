package sds

import "github.com/countersign-dev/countersign/sdk/unixpeer"

// Peer is the process at the other end of the socket.
type Peer = unixpeer.Peer

// Policy says which peers are answered. The zero value is the agent's own user and
// root.
type Policy = unixpeer.Policy
