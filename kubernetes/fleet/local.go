package fleet

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// LocalConfig returns how the local cluster is reached: by a kubeconfig, which comes from the
// operator and may contain everything kubectl supports, or by the pod's account. With dry,
// nothing will be sent, and a process that is no pod gets what a pod would have.
func LocalConfig(kubeconfig string, dry bool) (*rest.Config, error) {
	if kubeconfig != "" {
		c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("cluster.kubeconfig is %q: %w", kubeconfig, err)
		}
		return c, nil
	}
	local, err := rest.InClusterConfig()
	switch {
	case err == nil:
		return local, nil
	case !errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("cluster.kubeconfig is not set: %w", err)
	case dry:
		return &rest.Config{Host: "https://kubernetes.default.svc"}, nil
	}
	return nil, errors.New("cluster.kubeconfig is not set: not running in a Kubernetes pod; name a kubeconfig")
}
