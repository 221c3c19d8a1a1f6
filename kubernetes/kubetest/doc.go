// Package kubetest runs real Kubernetes clusters for e2e tests: [Start] returns an API
// server with its own etcd and with RBAC, ready in a few seconds. [Cluster.Controllers]
// adds kube-controller-manager, and [Cluster.HollowNode] a kubelet; all end with the test.
// It requires Linux, the build tag e2e and the environment variable
// COUNTERSIGN_KUBERNETES, which names the folder of the programs, built by
// scripts/get-kubernetes.
package kubetest
