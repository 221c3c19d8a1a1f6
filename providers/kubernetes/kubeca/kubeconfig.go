package kubeca

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// kubeconfig is as much of a kubeconfig as the provider uses. The fields of a cluster and a user
// are read one by one: one that is unknown may be what makes the connection safe.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster   string `yaml:"cluster"`
			User      string `yaml:"user"`
			Namespace string `yaml:"namespace"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string         `yaml:"name"`
		Cluster map[string]any `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string         `yaml:"name"`
		User map[string]any `yaml:"user"`
	} `yaml:"users"`
}

// readKubeconfig returns the access of a context. Errors do not quote the file: a misplaced
// value may be a credential.
func readKubeconfig(file setting.File, context string) (access, error) {
	content, err := file.Read()
	if err != nil {
		return access{}, err
	}
	to, err := parseKubeconfig(content, context, filepath.Dir(string(file)))
	if err != nil {
		return access{}, fmt.Errorf("%s: %w", file, err)
	}
	return to, nil
}

// parseKubeconfig parses one whose relative paths are below folder.
func parseKubeconfig(content []byte, context, folder string) (to access, err error) {
	var file kubeconfig
	if yaml.Unmarshal(content, &file) != nil { // its error quotes values
		return to, errors.New("it is not the YAML of a kubeconfig")
	}
	cluster, user, namespace, err := file.of(context)
	if err != nil {
		return to, err
	}
	if namespace != "" && !label.MatchString(namespace) {
		return to, errors.New("the namespace of the context is not the name of one")
	}
	to.namespace = namespace
	if err := to.setCluster(fields{cluster, folder}); err != nil {
		return to, fmt.Errorf("the cluster of the context: %w", err)
	}
	if err := to.setUser(fields{user, folder}); err != nil {
		return to, fmt.Errorf("the user of the context: %w", err)
	}
	return to, nil
}

// of returns the cluster and the user of a context, or of the current one.
func (k kubeconfig) of(context string) (cluster, user map[string]any, namespace string, err error) {
	if context == "" {
		context = k.CurrentContext
	}
	for _, c := range k.Contexts {
		if c.Name != context || context == "" {
			continue
		}
		for _, one := range k.Clusters {
			if one.Name == c.Context.Cluster {
				cluster = one.Cluster
			}
		}
		for _, one := range k.Users {
			if one.Name == c.Context.User {
				user = one.User
			}
		}
		if cluster == nil || user == nil {
			return nil, nil, "", errors.New("the context names a cluster or a user that the file does not have")
		}
		return cluster, user, c.Context.Namespace, nil
	}
	return nil, nil, "", errors.New("it has no such context: set context, or current-context there")
}

// fields are those of a cluster or a user.
type fields struct {
	values map[string]any
	folder string
}

// only refuses fields that are not among these.
func (f fields) only(known ...string) error {
	for field := range f.values {
		switch {
		case slices.Contains(known, field), field == "extensions":
		case field == "exec", field == "auth-provider":
			return fmt.Errorf("it has %s, and the provider starts no program: use a token, a tokenFile or a client certificate", field)
		case field == "insecure-skip-tls-verify":
			return errors.New("it has insecure-skip-tls-verify: set certificate-authority")
		default:
			return fmt.Errorf("it has a field that is not supported; these are: %q", known)
		}
	}
	return nil
}

func (f fields) text(field string) string {
	text, _ := f.values[field].(string)
	return text
}

// content returns what a field has inline as base64, or in the file that the field without
// -data names.
func (f fields) content(field string) ([]byte, error) {
	if data := f.text(field + "-data"); data != "" {
		content, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s-data is not base64", field)
		}
		return content, nil
	}
	path := f.text(field)
	if path == "" {
		return nil, nil
	}
	return f.file(path).Read()
}

func (f fields) file(path string) setting.File {
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.folder, path)
	}
	return setting.File(path)
}

func (to *access) setCluster(f fields) error {
	err := f.only("server", "certificate-authority", "certificate-authority-data", "tls-server-name", "disable-compression")
	if err != nil {
		return err
	}
	if to.url, err = setting.ParseURL(f.text("server")); err != nil {
		return errors.New("server is not an https URL")
	}
	to.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.text("tls-server-name")}
	roots, err := f.content("certificate-authority")
	to.mark = markOf([]byte(to.url.String()), []byte(to.tls.ServerName), roots)
	if err != nil || len(roots) == 0 {
		return err // without any, those of the operating system
	}
	certs, err := pki.ParseCertificates(roots)
	if err != nil {
		return errors.New("certificate-authority has no certificates in PEM")
	}
	to.tls.RootCAs = poolOf(certs)
	return nil
}

func (to *access) setUser(f fields) error {
	err := f.only("token", "tokenFile", "client-certificate", "client-certificate-data", "client-key", "client-key-data")
	if err != nil {
		return err
	}
	// A tokenFile comes before a token, as in Kubernetes' own clients: it is the one that is
	// replaced.
	if path := f.text("tokenFile"); path != "" {
		if to.token, err = readToken(f.file(path)); err != nil {
			return err
		}
	} else {
		to.token = ca.Token(f.text("token"))
	}
	return to.setPair(f)
}

func (to *access) setPair(f fields) error {
	chain, err := f.content("client-certificate")
	if err != nil {
		return err
	}
	private, err := f.content("client-key")
	if err != nil {
		return err
	}
	if len(chain) == 0 && len(private) == 0 {
		return nil
	}
	pair, err := tls.X509KeyPair(chain, private)
	switch {
	case err != nil: // which may quote the key
		return errors.New("client-certificate and client-key are not a certificate and its key in PEM")
	case pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter):
		return fmt.Errorf("client-certificate expired at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	to.tls.Certificates, to.mark = []tls.Certificate{pair}, markOf(to.mark[:], chain, private)
	return nil
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool
}
