// Package kubernetes contains no code. The packages below connect Kubernetes clusters to a
// discovery service and to a registration authority; README.md has the map.
package kubernetes
