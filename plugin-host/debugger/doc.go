// Package debugger (for Countersign's own programs) lets agents use a provider that its author
// started by hand, for example in a debugger, for `countersign provider debug`.
//
// [Debugger] connects the two; [Exec] starts a provider in another language. Package pluginhost
// attaches to a Debugger if an entry asks for it. The gRPC server and connection own their
// goroutines; Close ends them.
package debugger
