// Package deploy has tests of what deploy/ has for Kubernetes: the bases, the chart and the pages that
// use them, on real API servers. `make check NAME=kubernetes` runs them.
package deploy
