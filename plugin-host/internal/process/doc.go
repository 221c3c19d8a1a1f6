// Package process runs one process of a provider: it starts a verified binary with its
// pipes, keys and limits ([Start]), reads the handshake line and connects to the address in it
// ([Process.Connect]), and ends the process and everything it left behind ([Process.Stop]).
//
// Package supervise decides when to start and stop one; package pluginhost puts the two
// together. Three goroutines belong to a process and end with it: await reaps it, the
// relay reads its standard error, and ignoreStdout drains its standard output. Everything
// else happens on the caller's goroutine; Process.mu guards what await shares with it.
package process
