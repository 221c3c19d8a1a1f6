package process

// HoldSince is how a peer is held without SO_PEERPIDFD.
var HoldSince = holdSince
