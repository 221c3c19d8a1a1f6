// Package debugger lets agents use a provider that its author started by hand, for example
// in a debugger: [Debugger] connects the two, [Attached] is its other end, in the agent.
//
// `countersign provider debug` runs a Debugger, and [Exec] for a provider in another language;
// package pluginhost attaches to one if an entry asks for it. The gRPC server and connection own
// their goroutines; Close and Stop end them.
package debugger
