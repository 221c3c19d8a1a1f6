// Package kubernetes has what a secret service needs of Kubernetes' clusters; see the
// packages below. The binary countersign-discovery is made of them.
package kubernetes
