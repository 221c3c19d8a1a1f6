package config

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/token"
)

// StoreKubernetes keeps the certificates as Secrets of a Kubernetes cluster, in plain. A pod has access
// by its service account; others set url, root_file and token_file.
type StoreKubernetes struct {
	// Namespace has the Secrets and the Leases of orders, and should have nothing else. Default:
	// certificates are not shared.
	Namespace string `json:"namespace"`
	// TLSSecrets keeps a copy of each certificate as a Secret of type kubernetes.io/tls with the
	// name of the certificate, for ingress controllers. Default: false.
	TLSSecrets bool `json:"tls_secrets"`
	// URL is that of the API server, RootFile its roots (PEM), and TokenFile has the agent's
	// credential; both files are read for each call. Default: those of the pod.
	URL       string `json:"url"`
	RootFile  string `json:"root_file"`
	TokenFile string `json:"token_file"`
}

// Open returns the store; it reads and sends nothing.
func (k StoreKubernetes) Open(identity string, log *slog.Logger) (*kubestore.Store, error) {
	api := kubeapi.InCluster()
	if k.URL != "" {
		api = kubeapi.Config{URL: k.URL, RootFile: k.RootFile, Token: token.File{Path: k.TokenFile}}
	}
	return kubestore.Open(kubestore.Config{API: api, Namespace: k.Namespace, TLSSecrets: k.TLSSecrets, Identity: identity, Log: log})
}

func (c *Config) checkStoreKubernetes(p *problems) {
	k := c.Store.Kubernetes
	switch {
	case k == (StoreKubernetes{}):
		return
	case k.Namespace == "":
		c.say(p, "store.kubernetes.namespace", "", "write the namespace of the certificates")
		return
	case cmp.Or(c.Store.Folder, c.Store.KeyFile) != "":
		c.say(p, "store.kubernetes.namespace", k.Namespace, "store.folder or store.key_file is set, too; keep one store")
		return
	case (k.URL == "") != (k.TokenFile == ""):
		c.say(p, "store.kubernetes.url", k.URL, "write url and token_file, or neither for the access of the pod")
		return
	case k.URL == "" && k.RootFile != "":
		c.say(p, "store.kubernetes.root_file", k.RootFile, "write url and token_file, too, or remove it")
		return
	}
	store, err := k.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		p.add(fmt.Errorf("store.kubernetes: %w", err))
		return
	}
	store.Close()
}
