// Package verified decides which file may run: it finds a provider's binary in the
// configured folders ([Finder]), refuses one that others could have written, hashes it,
// compares the hash with the pin and holds the content for the starts to come ([Open]).
//
// Package pluginhost and the commands of countersign call it. It starts no goroutine
// that outlives a call and keeps no state but the receipts file, which is replaced
// atomically.
package verified
