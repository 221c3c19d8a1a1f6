package sds

import "github.com/countersign-dev/countersign/sdk/unixpeer"

// Peer is the process at the other end of the socket.
type Peer = unixpeer.Peer

// Policy decides which peers are served. The zero value admits the agent's own user and
// root.
type Policy = unixpeer.Policy
