package kubeca

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/token"
)

const defaultURL = "https://kubernetes.default.svc"

// account is the folder of a pod's service account; tests replace it.
var account = "/var/run/secrets/kubernetes.io/serviceaccount"

// access is how to call the API server, as the files say now.
type access struct {
	url       setting.URL
	tls       *tls.Config
	token     ca.Token // may be empty with a client certificate
	namespace string   // that of the credential; may be empty
	mark      fingerprint
}

// fingerprint differs where the server, or what verifies one of the sides, does.
type fingerprint [sha256.Size]byte

func markOf(parts ...[]byte) fingerprint {
	all := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256(part)
		all.Write(sum[:])
	}
	return fingerprint(all.Sum(nil))
}

// access reads the files. What is wrong with them is [ca.Unavailable]: they may be replaced.
func (s Settings) access(requests ca.Token) (access, error) {
	var to access
	var err error
	if s.Kubeconfig != "" {
		to, err = readKubeconfig(s.Kubeconfig, s.Context)
	} else {
		to, err = s.direct()
	}
	if err != nil {
		return access{}, ca.Errorf(ca.Unavailable, "%w", err)
	}
	if s.UseRequestToken {
		if requests == "" {
			return access{}, ca.Errorf(ca.Unauthenticated, "the request has no token, and use_request_token is set: configure the provider's token")
		}
		to.token, to.tls.Certificates, to.tls.GetClientCertificate = requests, nil, nil
		to.mark = markOf(to.mark[:], []byte("no client certificate"))
	}
	return to, nil
}

// direct is the access without a kubeconfig.
func (s Settings) direct() (to access, err error) {
	to.url = s.URL
	if to.url.Host == "" {
		if to.url, err = setting.ParseURL(defaultURL); err != nil {
			return to, err
		}
	}
	trust := s.TLS
	trust.RootFile = cmp.Or(trust.RootFile, account+"/ca.crt")
	// Before the files are read for use: a file that is replaced between the two costs a
	// connection.
	to.mark = markOf([]byte(to.url.String()), []byte(trust.ServerName), contentOf(trust.RootFile), contentOf(trust.ClientCertFile), contentOf(trust.ClientKeyFile))
	if to.tls, err = trust.Config(); err != nil {
		return to, err
	}
	if namespace, err := setting.File(account + "/namespace").Read(); err == nil {
		to.namespace = strings.TrimSpace(string(namespace))
	}
	if s.UseRequestToken || s.TokenFile == "" && trust.Client().IsSet() {
		return to, nil
	}
	to.token, err = readToken(cmp.Or(s.TokenFile, setting.File(account+"/token")))
	return to, err
}

// contentOf is nothing where there is no such file.
func contentOf(path string) []byte {
	content, err := setting.File(path).Read()
	if err != nil {
		return nil
	}
	return content
}

// readToken reads a bearer token from a file.
func readToken(file setting.File) (ca.Token, error) {
	got, err := token.File{Path: string(file)}.Token(context.Background()) // a local file
	return got.Token, err
}
