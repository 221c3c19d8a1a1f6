// Package supervise keeps a provider alive: it starts one life after the other, restarts
// what ended with backoff and an open circuit, replaces what does not answer, and moves
// calls to a new generation without losing one. README.md of plugin-host draws the states.
//
// Package pluginhost makes a [Plan] of an entry and hands it to [New]. The goroutine of
// Supervisor.run owns all state and starts every process; others send it messages. The
// gate is what it shares: a copy of the status, and the life that calls go to. Each life
// has a goroutine that gets it ready and, once it is ready, one that checks its health.
package supervise
