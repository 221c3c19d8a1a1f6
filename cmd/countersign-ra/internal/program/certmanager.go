package program

import (
	"github.com/countersign-dev/countersign/kubernetes/certmanager"
	"github.com/countersign-dev/countersign/ra"
)

// makeCertManager makes the door for cert-manager's requests. It is in the home cluster alone.
func (o *clusterRun) makeCertManager(t *leaderSession, issuer ra.Issuer) (err error) {
	if !o.cluster.Local() || !t.config.CertManager.Enabled() {
		return nil
	}
	id := o.cluster.ID()
	o.manager, err = certmanager.New(certmanager.Config{
		Cluster: id, Issuer: issuer, Authorities: t.config.CertManager.Issuers(),
		Observe: t.metrics.certManager(id), Log: t.log,
	})
	return err
}
