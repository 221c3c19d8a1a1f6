package program

import (
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/kubernetes/certmanager"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// makeCertManager makes the door for cert-manager's requests. It is in the home cluster alone.
func (o *clusterRun) makeCertManager(c config.CertManager, door signing.Config) (err error) {
	if !o.cluster.Local() || !c.Enabled() {
		return nil
	}
	o.manager, err = certmanager.New(certmanager.Config{Config: door, Authorities: c.Issuers()})
	return err
}
