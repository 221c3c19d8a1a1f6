// Package kubetest runs real Kubernetes API servers for tests: [Start] gives one with an
// etcd of its own, with RBAC on and no controllers, which answers in a few seconds and is
// gone with the test. It runs on Linux, and is for tests with the build tag e2e: the
// environment variable COUNTERSIGN_KUBERNETES names the folder with kube-apiserver and
// etcd, which scripts/get-kubernetes builds.
package kubetest
