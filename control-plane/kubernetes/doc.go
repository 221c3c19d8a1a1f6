// Package kubernetes contains no code. The packages below connect Kubernetes clusters to a
// discovery service and to a registration authority; the programs countersign-discovery and
// countersign-ra are built from them.
package kubernetes
