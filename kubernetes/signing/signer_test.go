package signing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

func TestSignerNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	domain := strings.Join([]string{long, long, long, long[:61]}, ".")
	for name, good := range map[string]bool{
		"example.com/workloads":            true,
		"a.b/c":                            true,
		"example.com/workloads.payments":   true,
		"notkubernetes.io/signer":          true,
		"kubernetes.io.example.com/signer": true,
		domain + "/" + long:                true,
		"":                                 false,
		"example.com":                      false,
		"example.com/":                     false,
		"/workloads":                       false,
		"com/workloads":                    false,
		"example.com/a/b":                  false,
		"example.com/*":                    false,
		"Example.com/workloads":            false,
		"example.com/Workloads":            false,
		"example.com/a b":                  false,
		"example..com/a":                   false,
		"example.com/a\n":                  false,
		domain + "a/b":                     false,
		"example.com/" + strings.Repeat(long+".", 20): false,
		"kubernetes.io/kube-apiserver-client":         false,
		"kubernetes.io/anything":                      false,
		"sub.kubernetes.io/signer":                    false,
		"KUBERNETES.IO/kube-apiserver-client":         false,
		"kubernetes.io./kube-apiserver-client":        false,
	} {
		err := signing.CheckName(name)
		if (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && len(err.Error()) > 512 {
			t.Errorf("%q: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func TestDoorsHaveTheAPIServersBounds(t *testing.T) {
	pod := signing.PodDoor("example.com/a")
	if pod.Name != "pod-certificates/example.com/a" || !pod.NoNames || pod.MinLifetime != time.Hour || pod.MaxLifetime != 7862400*time.Second ||
		pod.MaxBackdating <= 0 || pod.MaxBackdating >= 5*time.Minute {
		t.Errorf("%+v", pod)
	}
	if csr := signing.CSRDoor("example.com/a"); csr.Name != "certificate-requests/example.com/a" || csr.NoNames || csr.MinLifetime != 600*time.Second {
		t.Errorf("%+v", csr)
	}
}
