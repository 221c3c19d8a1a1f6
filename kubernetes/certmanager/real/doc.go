// Package real contains no code. Its tests, behind the tags e2e and certmanager, run the issuer with
// cert-manager's own controllers against a real API server.
package real
