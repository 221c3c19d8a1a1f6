package wire

// Room is what one reply takes at most.
const Room = room

// NewRemoteWithin is [NewRemote] with another budget than the process's.
var NewRemoteWithin = newRemote
