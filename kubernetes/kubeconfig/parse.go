package kubeconfig

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// qps and burst let a thousand streams be authorized within seconds; client-go's
	// default of 5 a second would not.
	qps, burst = 50, 100
	maxToken   = 64 << 10
)

// Parse parses a kubeconfig and uses only its current-context. Whatever a name resolves
// to, the result connects only to servers the rules allow; it ignores proxies from the
// environment and does not send its credential to another host on a redirect. It sets
// no Timeout, which would end watches: use each request's context. It sets no UserAgent:
// client-go's default names the program. Errors contain no token, key, password or other
// content except a server's host.
func Parse(text []byte, rules Rules) (*rest.Config, error) {
	servers, err := parseServers(rules.Servers)
	if err == nil {
		err = rules.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("rules for kubeconfigs: %w", err)
	}
	config, err := parse(text, rules, servers)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

func parse(text []byte, rules Rules, servers servers) (*rest.Config, error) {
	file, err := decode(text)
	if err != nil {
		return nil, err
	}
	cluster, user, err := current(file)
	if err != nil {
		return nil, err
	}
	if err := rules.checkFields(cluster, user); err != nil {
		return nil, err
	}
	if err := checkUser(user); err != nil {
		return nil, err
	}
	server, err := parseServer(cluster.Server, rules.allows(plainHTTP))
	if err != nil {
		return nil, err
	}
	if err := checkCluster(cluster, server, servers); err != nil {
		return nil, err
	}
	return build(file, user, server, servers)
}

// current returns the cluster and user of the current-context.
func current(file *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	if file.CurrentContext == "" {
		return nil, nil, errors.New("no current-context")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return nil, nil, errors.New("current-context names an unknown context")
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, errors.New("current-context refers to an unknown cluster or user")
	}
	return cluster, user, nil
}

func checkUser(u *clientcmdapi.AuthInfo) error {
	switch {
	case len(u.Token) > maxToken || strings.ContainsFunc(u.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("invalid token: longer than %d bytes, or not printable ASCII without spaces", maxToken)
	case (len(u.ClientCertificateData) > 0) != (len(u.ClientKeyData) > 0) && u.ClientCertificate == "" && u.ClientKey == "":
		return errors.New("user has only one of client-certificate-data and client-key-data")
	case u.Token == "" && u.TokenFile == "" && len(u.ClientCertificateData) == 0 && u.ClientCertificate == "" && u.Username == "" && u.Exec == nil && u.AuthProvider == nil:
		return errors.New("user has no credential: set token, or client-certificate-data and client-key-data")
	}
	return checkPair(u)
}

// checkPair bounds the sizes of keys: whoever wrote the kubeconfig may be a stranger.
func checkPair(u *clientcmdapi.AuthInfo) error {
	if len(u.ClientCertificateData) == 0 || len(u.ClientKeyData) == 0 {
		return nil
	}
	if _, err := pki.ParseCertificates(u.ClientCertificateData); err != nil {
		return fmt.Errorf("its client-certificate-data: %w", err)
	}
	if _, err := pki.ParseKey(u.ClientKeyData); err != nil {
		return fmt.Errorf("its client-key-data: %w", err)
	}
	return nil
}

func checkCluster(c *clientcmdapi.Cluster, server *url.URL, servers servers) error {
	if c.TLSServerName != "" && !isHost(c.TLSServerName) {
		return errors.New("tls-server-name is not a host name")
	}
	if len(c.CertificateAuthorityData) > 0 {
		if _, err := pki.ParseCertificates(c.CertificateAuthorityData); err != nil {
			return fmt.Errorf("its certificate-authority-data: %w", err)
		}
	}
	if c.ProxyURL != "" {
		if err := checkProxy(c.ProxyURL); err != nil {
			return err
		}
	}
	return servers.check(server.Hostname(), c.ProxyURL != "")
}

// build converts the checked configuration with clientcmd.
func build(file *clientcmdapi.Config, user *clientcmdapi.AuthInfo, server *url.URL, servers servers) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err == nil {
		_, err = rest.TLSConfigFor(config)
	}
	if err != nil {
		secrets := []ca.Token{ca.Token(user.Token), ca.Token(user.Password), ca.Token(user.ClientKeyData)}
		return nil, fmt.Errorf("cannot be used: %s", text.Redact(err.Error(), secrets...))
	}
	config.QPS, config.Burst = qps, burst
	proxied := config.Proxy != nil
	if !proxied {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	config.Dial = servers.dialer(server.Hostname(), proxied).DialContext
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &oneServer{server.Scheme, server.Host, next} })
	return config, nil
}
