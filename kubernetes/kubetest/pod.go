//go:build linux

package kubetest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The projected volume of a [CertificatePod], and its files.
const (
	CertificateVolume = "certificate"
	CredentialsFile   = "credentials.pem" // the key, then the chain
	RootsFile         = "roots.pem"       // all trust bundles of the signer
)

// CertificatePod returns a pod of an account on a node. It starts once it has a certificate
// and a trust bundle of the signer.
func CertificatePod(namespace, name, account, node, signer string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: node,
			AutomountServiceAccountToken:  new(bool),
			TerminationGracePeriodSeconds: new(int64),
			// A volume that no container mounts keeps no pod from starting.
			Containers: []corev1.Container{{
				Name: "main", Image: "main", VolumeMounts: []corev1.VolumeMount{{Name: CertificateVolume, MountPath: "/certificate"}},
			}},
			Volumes: []corev1.Volume{{Name: CertificateVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: signer, KeyType: "ECDSAP256", CredentialBundlePath: CredentialsFile}},
					// An empty selector selects all bundles; without one there would be none.
					{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{}, Path: RootsFile}},
				},
			}}}},
		},
	}
}

// CreatePod creates a pod and returns it with its UID. Its account must exist.
func (c *Cluster) CreatePod(pod *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	created, err := c.admin.CoreV1().Pods(pod.Namespace).Create(context.Background(), pod, metav1.CreateOptions{})
	must(c.t, err)
	return created
}

// AwaitRunning returns when all these pods are running.
func (c *Cluster) AwaitRunning(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		c.await(fmt.Sprintf("pod %s/%s is not running", pod.Namespace, pod.Name), func(ctx context.Context) (bool, error) {
			now, err := c.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return now.Status.Phase == corev1.PodRunning, fmt.Errorf("it is %s: %v", now.Status.Phase, now.Status.ContainerStatuses)
		})
	}
}
