package kubeconfig

import (
	"encoding/base64"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token    = "eyJhbGciOiJSUzI1NiJ9.c3lzdGVtOnNlcnZpY2VhY2NvdW50.c2lnbmF0dXJl"
	password = "correct-horse-battery-staple-0123456789"
)

// pair is a certificate that is its own root, and its key; both PEM in base64.
func pair(t testing.TB) (cert, key string) {
	t.Helper()
	made := certtest.Loopback(t)
	return base64.StdEncoding.EncodeToString(made.PEM()), base64.StdEncoding.EncodeToString(made.KeyPEM(t))
}

// file is a kubeconfig with these fields of the cluster and the user, one in a line.
func file(cluster, user string) string {
	indent := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
	}
	return "apiVersion: v1\nkind: Config\ncurrent-context: main\ncontexts:\n- name: main\n  context: {cluster: east, user: reader}\n" +
		"clusters:\n- name: east\n  cluster:\n" + indent(cluster) + "\nusers:\n- name: reader\n  user:\n" + indent(user) + "\n"
}

const (
	server   = "server: https://api.example.org:6443"
	bearer   = "token: " + token
	goodCA   = "certificate-authority-data: "
	execUser = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}"
)
