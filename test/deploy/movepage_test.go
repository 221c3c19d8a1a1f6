//go:build e2e && linux

package deploy_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// moveHere does what the page says to those who come from csi-driver-spiffe, whose driver is not
// here, and from istio-csr. A Deployment's pods are made as its controllers make them.
func (r *reader) moveHere(t *testing.T) {
	t.Helper()
	list, patch, compare := r.commands[5], r.commands[6], r.commands[7]
	r.deployWithDriver(t)
	before := r.podOfDeployment(t, "web-before")
	if listed := r.run(t, list); !strings.Contains(listed, before.Name) || strings.Count(listed, "\n") != 1 {
		t.Errorf("these use the driver:\n%s", listed)
	}
	r.run(t, patch)
	after := r.podOfDeployment(t, "web-after")
	r.cluster.AwaitRunning(after)
	if c := after.Spec.Volumes; len(c) != 1 || c[0].CSI != nil || c[0].Projected.Sources[0].PodCertificate.KeyPath != "tls.key" {
		t.Errorf("the pod has the volumes %v", c)
	}
	r.verifyFiles(t, after)
	must(t, r.cluster.Client().CoreV1().Pods("shop").Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	if listed := r.run(t, strings.TrimSpace(list)+" || echo none"); !strings.HasSuffix(listed, "none\n") {
		t.Errorf("these use the driver:\n%s", listed)
	}
	_, err := r.cluster.Client().CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ // as istio-csr publishes it
		ObjectMeta: metav1.ObjectMeta{Name: "istio-ca-root-cert"}, Data: map[string]string{"root-cert.pem": r.vault.rootOf(t, "pki")},
	}, metav1.CreateOptions{})
	must(t, err)
	if prints := strings.Fields(r.run(t, compare)); len(prints) != 4 || prints[1] != prints[3] {
		t.Errorf("the fingerprints are %q", prints)
	}
}

// deployWithDriver creates a Deployment with a volume as csi-driver-spiffe documents it.
func (r *reader) deployWithDriver(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := r.cluster.Client().AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: "web", AutomountServiceAccountToken: new(bool), TerminationGracePeriodSeconds: new(int64),
					Containers: []corev1.Container{{
						Name: "web", Image: "web", VolumeMounts: []corev1.VolumeMount{{Name: "spiffe", MountPath: "/var/run/secrets/spiffe.io"}},
					}},
					Volumes: []corev1.Volume{{Name: "spiffe", VolumeSource: corev1.VolumeSource{
						CSI: &corev1.CSIVolumeSource{Driver: "spiffe.csi.cert-manager.io", ReadOnly: new(true)},
					}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

func (r *reader) podOfDeployment(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	d, err := r.cluster.Client().AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.Name, pod.Spec.NodeName = "shop", name, r.node.Name
	return r.cluster.CreatePod(pod)
}
