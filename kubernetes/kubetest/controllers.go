//go:build linux

package kubetest

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// essentials are the controllers on which pods and their certificates depend.
var essentials = []string{
	"garbage-collector-controller", "namespace-controller", "pod-garbage-collector-controller", "serviceaccount-controller",
	"podcertificaterequest-cleaner-controller", "certificatesigningrequest-cleaner-controller", "root-ca-certificate-publisher-controller",
}

// Controllers starts kube-controller-manager with these controllers, as its flag
// --controllers names them. Default: those that delete what is old or has lost its owner,
// and those that make a namespace's first objects. It does not wait for their effects.
func (c *Cluster) Controllers(names ...string) *proctest.Process {
	c.t.Helper()
	if len(names) == 0 {
		names = essentials
	}
	return c.controllers(names)
}

// Signers starts kube-controller-manager with the signers of Kubernetes itself, which sign what
// is approved with a CA's certificate and key (PEM).
func (c *Cluster) Signers(cert, key []byte) *proctest.Process {
	c.t.Helper()
	must(c.t, os.WriteFile(c.file("signer.pem"), cert, 0o600))
	must(c.t, os.WriteFile(c.file("signer-key.pem"), key, 0o600))
	return c.controllers([]string{"certificatesigningrequest-signing-controller"},
		"--cluster-signing-cert-file="+c.file("signer.pem"), "--cluster-signing-key-file="+c.file("signer-key.pem"))
}

func (c *Cluster) controllers(names []string, flags ...string) *proctest.Process {
	c.t.Helper()
	return run(c.t, c.log("kube-controller-manager"), filepath.Join(c.binaries, "kube-controller-manager"), append([]string{
		"--kubeconfig=" + c.writeKubeconfig("controllers", c.AdminKubeconfig()), "--controllers=" + strings.Join(names, ","),
		// Nobody asks it anything, and there is just one.
		"--secure-port=0", "--leader-elect=false",
		"--root-ca-file=" + c.file("ca.pem"), "--service-account-private-key-file=" + c.file("accounts-key.pem"),
	}, flags...)...)
}

// writeKubeconfig writes one for a program, and returns its path.
func (c *Cluster) writeKubeconfig(program string, content []byte) string {
	c.t.Helper()
	path := c.file(program + ".kubeconfig")
	must(c.t, os.WriteFile(path, content, 0o600))
	return path
}
