// Package debugger is for Countersign's own command and not for embedders: `countersign provider
// debug` lets agents use a provider that its author started by hand, for example in a debugger.
//
// [Debugger] connects the two; [Exec] starts a provider in another language. Package pluginhost
// attaches to a Debugger if an entry asks for it. The gRPC server and connection own their
// goroutines; Close ends them.
package debugger
