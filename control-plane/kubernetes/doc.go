// Package kubernetes contains no code. The packages below connect a secret service to
// Kubernetes clusters; the binary countersign-discovery is built from them.
package kubernetes
