// Package kubeca gets certificates from the signers of a Kubernetes cluster
// (CertificateSigningRequest) and from the issuers of cert-manager (CertificateRequest), as a
// [ca.Client] and [ca.RootSource]. countersign-provider-kubernetes serves it as a process; call
// [Open] to use it in another program.
//
// It speaks the API server's REST interface, reads its files for each call, and has no
// goroutine of its own.
package kubeca

import (
	"cmp"
	"log/slog"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// Settings say who signs, how to reach the API server, and where the roots are. The fields with
// a JSON name are the provider's settings.
type Settings struct {
	// SignerName makes CertificateSigningRequests for a signer, and Issuer CertificateRequests
	// for an issuer of cert-manager. One of them is required.
	SignerName string  `json:"signer_name,omitempty" jsonschema:"signer of CertificateSigningRequests, such as example.org/mesh; required unless issuer"`
	Issuer     *Issuer `json:"issuer,omitempty" jsonschema:"issuer of cert-manager's CertificateRequests; required unless signer_name"`
	// Namespace is where CertificateRequests are made. Default: that of the kubeconfig's
	// context, or of the pod.
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of CertificateRequests (default that of the kubeconfig's context, or of the pod)"`
	// Usages are the key usages to ask for. Default: digital signature, server auth and
	// client auth, without those that the signers of Kubernetes itself refuse.
	Usages []string `json:"usages,omitempty" enum:"digital signature,key encipherment,key agreement,server auth,client auth" jsonschema:"key usages to ask for (default digital signature, server auth and client auth; as far as they allow for the signers of Kubernetes itself)"`

	// Kubeconfig has the API server and the credential; Context chooses one of its contexts.
	// Default: those of the pod's service account.
	Kubeconfig setting.File `json:"kubeconfig,omitempty" jsonschema:"kubeconfig with the API server and the credential, read for each call (default those of the pod's service account)"`
	Context    string       `json:"context,omitempty" jsonschema:"context of the kubeconfig (default its current-context)"`
	// URL, TLS and TokenFile are the API server and the credential where there is no
	// kubeconfig. Default: those of the pod's service account.
	URL setting.URL `json:"url,omitzero" address:"url" jsonschema:"URL of the API server, without a kubeconfig (default https://kubernetes.default.svc)"`
	setting.TLS
	TokenFile setting.File `json:"token_file,omitempty" jsonschema:"file with the token for the API server, without a kubeconfig, read for each call (default that of the pod's service account)"`
	// UseRequestToken calls the API server with the token of each request, which identifies the
	// workload. Default: false.
	UseRequestToken bool `json:"use_request_token,omitempty" jsonschema:"call the API server with the token of each request, so that approvers see the workload's own account (default false)"`

	// BundleFile, ConfigMap and ClusterTrustBundle say where the roots are, at most one of them.
	// One is required with SignerName. Default: the ca of each CertificateRequest.
	BundleFile         setting.Certificates `json:"bundle_file,omitempty" jsonschema:"PEM file with the roots of the certificates, read for each use, or the PEM text"`
	ConfigMap          *ConfigMap           `json:"config_map,omitempty" jsonschema:"ConfigMap with the roots of the certificates"`
	ClusterTrustBundle string               `json:"cluster_trust_bundle,omitempty" jsonschema:"name of the ClusterTrustBundle with the roots of the certificates"`

	// Log gets warnings and debug records. Default: none.
	Log *slog.Logger `json:"-"`
}

// Issuer is an issuer of cert-manager.
type Issuer struct {
	Name  string `json:"name" jsonschema:"name of the issuer"`
	Kind  string `json:"kind,omitempty" default:"Issuer" jsonschema:"kind of the issuer"`
	Group string `json:"group,omitempty" default:"cert-manager.io" jsonschema:"API group of the issuer"`
}

func (i Issuer) ref() *issuerRef {
	return &issuerRef{i.Name, cmp.Or(i.Kind, "Issuer"), cmp.Or(i.Group, "cert-manager.io")}
}

// ConfigMap is a value of a ConfigMap.
type ConfigMap struct {
	Namespace string `json:"namespace" jsonschema:"namespace of the ConfigMap"`
	Name      string `json:"name" jsonschema:"name of the ConfigMap"`
	Key       string `json:"key,omitempty" default:"ca.crt" jsonschema:"key of the value, PEM"`
}

var (
	// label and name are Kubernetes' own (RFC 1123). A trust bundle of a signer has colons.
	label  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	name   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	bundle = regexp.MustCompile(`^[a-z0-9]([a-z0-9.:-]{0,251}[a-z0-9])?$`)
	signer = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[a-z0-9]([a-z0-9.:-]{0,315}[a-z0-9])?$`)
	kind   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	key    = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}$`)
)

// Validate checks what the types of the settings do not, without access to files or the
// network; [Open] checks all. The error has the reason [ca.Invalid].
func (s Settings) Validate() error {
	for _, check := range []func() error{s.checkSigner, s.checkNames, s.checkAccess, s.checkRoots} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s Settings) checkSigner() error {
	switch {
	case s.SignerName == "" && s.Issuer == nil:
		return ca.Errorf(ca.Invalid, "neither signer_name nor issuer is set: name a signer of Kubernetes or an issuer of cert-manager")
	case s.SignerName != "" && s.Issuer != nil:
		return ca.Errorf(ca.Invalid, "signer_name and issuer are both set: use an entry for each")
	case s.SignerName != "" && s.Namespace != "":
		return ca.Errorf(ca.Invalid, "namespace is %.256q, but CertificateSigningRequests have none: remove it", s.Namespace)
	}
	return nil
}

func (s Settings) checkNames() error {
	issuer, configMap := Issuer{}, ConfigMap{}
	if s.Issuer != nil {
		issuer = *s.Issuer
	}
	if s.ConfigMap != nil {
		configMap = *s.ConfigMap
	}
	for _, one := range []struct {
		setting, value, wants string
		shape                 *regexp.Regexp
		required              bool
	}{
		{"signer_name", s.SignerName, "DOMAIN/NAME, such as example.org/mesh", signer, false},
		{"issuer.name", issuer.Name, "the name of an object", name, s.Issuer != nil},
		{"issuer.kind", issuer.Kind, "a kind, such as ClusterIssuer", kind, false},
		{"issuer.group", issuer.Group, "an API group, such as cert-manager.io", name, false},
		{"namespace", s.Namespace, "the name of a namespace", label, false},
		{"config_map.namespace", configMap.Namespace, "the name of a namespace", label, s.ConfigMap != nil},
		{"config_map.name", configMap.Name, "the name of an object", name, s.ConfigMap != nil},
		{"config_map.key", configMap.Key, "the key of a ConfigMap", key, false},
		{"cluster_trust_bundle", s.ClusterTrustBundle, "the name of a ClusterTrustBundle, such as example.org:mesh:1", bundle, false},
	} {
		if (one.value != "" || one.required) && !one.shape.MatchString(one.value) {
			return ca.Errorf(ca.Invalid, "%s is %.256q: want %s", one.setting, one.value, one.wants)
		}
	}
	return nil
}

func (s Settings) checkAccess() error {
	direct := s.URL.Host != "" || s.TLS != (setting.TLS{}) || s.TokenFile != ""
	switch {
	case s.Kubeconfig != "" && direct:
		return ca.Errorf(ca.Invalid, "kubeconfig is %.256q, so url, root_file, server_name, token_file and the client certificate come from there: remove them here", s.Kubeconfig)
	case s.Context != "" && s.Kubeconfig == "":
		return ca.Errorf(ca.Invalid, "context is %.256q, but kubeconfig is not set", s.Context)
	case s.UseRequestToken && (s.TokenFile != "" || s.ClientCertFile != ""):
		return ca.Errorf(ca.Invalid, "use_request_token is set, and so is token_file or client_cert_file: which one is the credential?")
	}
	return nil
}

func (s Settings) checkRoots() error {
	places := 0
	for _, set := range []bool{s.BundleFile != "", s.ConfigMap != nil, s.ClusterTrustBundle != ""} {
		if set {
			places++
		}
	}
	switch {
	case places > 1:
		return ca.Errorf(ca.Invalid, "more than one of bundle_file, config_map and cluster_trust_bundle is set: choose one")
	case places == 0 && s.SignerName != "":
		return ca.Errorf(ca.Invalid, "a CertificateSigningRequest does not contain the roots: set bundle_file, config_map or cluster_trust_bundle")
	case s.UseRequestToken && places > 0 && s.BundleFile == "":
		return ca.Errorf(ca.Invalid, "roots are read without a request, so use_request_token has no token for them: set bundle_file")
	}
	return nil
}

// usages are the key usages to ask for.
func (s Settings) usages() []string {
	switch {
	case len(s.Usages) > 0:
		return s.Usages
	case strings.HasPrefix(s.SignerName, "kubernetes.io/kube-apiserver-client"):
		return []string{"digital signature", "client auth"}
	case s.SignerName == "kubernetes.io/kubelet-serving":
		return []string{"digital signature", "server auth"}
	}
	return []string{"digital signature", "server auth", "client auth"}
}
