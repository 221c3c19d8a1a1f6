// Package kubetest runs real Kubernetes API servers for e2e tests: [Start] returns one
// with its own etcd, with RBAC and without controllers; it is ready in a few seconds
// and ends with the test. It requires Linux, the build tag e2e and the environment
// variable COUNTERSIGN_KUBERNETES, which names the folder with kube-apiserver and etcd,
// built by scripts/get-kubernetes.
package kubetest
