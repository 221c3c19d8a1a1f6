package googleca

import (
	"cmp"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// The values of settings with a choice.
const (
	CAS    = "cas"    // protocol: Certificate Authority Service
	MeshCA = "meshca" // protocol: Mesh CA

	CSRNames        = "csr"              // subject_mode: the names of the request
	ReflectedSPIFFE = "reflected-spiffe" // subject_mode: the caller's SPIFFE ID

	ADC   = "adc"   // credentials: Application Default Credentials
	File  = "file"  // credentials: those in credentials_file
	Token = "token" // credentials: the token of each request
)

// Settings say which CA signs and how to call it. The fields with a JSON name are the
// provider's settings.
type Settings struct {
	// Protocol is [CAS] or [MeshCA]. Default: CAS.
	Protocol string `json:"protocol,omitempty" jsonschema:"cas for Certificate Authority Service, or meshca for a server that speaks Mesh CA's protocol (default cas)"`
	// CAPool is the pool that signs, projects/P/locations/L/caPools/N. Required with CAS.
	CAPool string `json:"ca_pool,omitempty" address:"text" pattern:"^$|^projects/[A-Za-z0-9_.:-]+/locations/[A-Za-z0-9_-]+/caPools/[A-Za-z0-9_-]+$" jsonschema:"pool that signs, projects/P/locations/L/caPools/N; required with cas"`
	// IssuingCA is the ID of the CA in the pool that must sign. Default: the service chooses.
	IssuingCA string `json:"issuing_ca,omitempty" jsonschema:"ID of the CA in the pool that must sign (default the service chooses)"`
	// CertificateTemplate is projects/P/locations/L/certificateTemplates/N, in the
	// pool's location. Default: none.
	CertificateTemplate string `json:"certificate_template,omitempty" jsonschema:"certificate template, projects/P/locations/L/certificateTemplates/N (default none)"`
	// SubjectMode is [CSRNames] or [ReflectedSPIFFE]. Default: CSRNames.
	SubjectMode string `json:"subject_mode,omitempty" jsonschema:"csr for the names of the request, or reflected-spiffe for the SPIFFE ID of the caller (default csr)"`
	// Labels are set on each certificate, at most 64. Default: none.
	Labels map[string]string `json:"labels,omitempty" jsonschema:"labels of each certificate (default none)"`
	// RootsInterval is how often the pool's roots are fetched, give or take a tenth. Default:
	// 5m.
	RootsInterval time.Duration `json:"roots_interval,omitempty" jsonschema:"how often to fetch the pool's roots, such as 10m (default 5m)"`
	// Endpoint is host:port of the service. Required with MeshCA. Default: Google's.
	Endpoint string `json:"endpoint,omitempty" address:"host:port" jsonschema:"host:port of the service (default Google's); required with meshca"`
	// UniverseDomain is the domain of the cloud. Default: googleapis.com.
	UniverseDomain string `json:"universe_domain,omitempty" jsonschema:"domain of the cloud (default googleapis.com)"`
	// RootFile is a PEM file with the roots that verify the service, read by Open. Default: the
	// operating system's roots.
	RootFile setting.File `json:"root_file,omitempty" jsonschema:"PEM file with the roots that verify the service (default those of the operating system)"`
	// QuotaProject is the project whose quota is charged. Default: that of the credentials.
	QuotaProject string `json:"quota_project,omitempty" jsonschema:"project whose quota is charged (default that of the credentials)"`
	// Credentials are [ADC], [File] or [Token]. Default: Token with MeshCA, which accepts no
	// others; else File if CredentialsFile is set; else Token with an Exchange; else ADC.
	Credentials string `json:"credentials,omitempty" jsonschema:"adc for Application Default Credentials, file for credentials_file, or token for the token of each request (default token with meshca; else file if credentials_file is set; else token with exchange; else adc)"`
	// CredentialsFile is a JSON file as Google's tools write it, read by Open: the key of a
	// service account, or another credential configuration. Default: none.
	CredentialsFile setting.File `json:"credentials_file,omitempty" jsonschema:"JSON file with a service account's key or another credential configuration (default none)"`
	// Location is a zone or region, or the URL of a cluster in it as in GKE_CLUSTER_URL.
	// Required with MeshCA.
	Location string `json:"location,omitempty" jsonschema:"zone or region of the cluster, or its URL as in GKE_CLUSTER_URL; required with meshca"`

	// CertificateAuthority is the private CA that must sign,
	// projects/P/locations/L/certificateAuthorities/N, for MeshCA. Default: the service chooses.
	CertificateAuthority string `json:"certificate_authority,omitempty" jsonschema:"private CA that must sign, projects/P/locations/L/certificateAuthorities/N, for meshca (default the service chooses)"`

	// Exchange exchanges the token of each request first. Default: it is a Google token.
	Exchange *Exchange `json:"exchange,omitempty" jsonschema:"exchange the token of each request at Google's token service first (default the token is one of Google's)"`

	// Log gets warnings. Default: none.
	Log *slog.Logger `json:"-"`
}

const (
	defaultInterval = 5 * time.Minute
	minInterval     = 10 * time.Second // as each agent calls the service that often
	maxLabels       = 64
	maxLabel        = 63
)

// The service checks lengths: counted repetitions would cost a millisecond at start.
var (
	poolName     = regexp.MustCompile(`^projects/[\w.:-]+/locations/([\w-]+)/caPools/[\w-]+$`)
	templateName = regexp.MustCompile(`^projects/[\w.:-]+/locations/([\w-]+)/certificateTemplates/[\w-]+$`)
	privateCA    = regexp.MustCompile(`^projects/[\w.:-]+/locations/[\w-]+/certificateAuthorities/[\w-]+$`)
	authorityID  = regexp.MustCompile(`^[\w-]+$`)
	zone         = regexp.MustCompile(`^[a-z0-9-]+$`)
	clusterURL   = regexp.MustCompile(`^https://[^/]+/v1\w*/projects/[^/]+/(?:locations|zones)/([a-z0-9-]+)/clusters/[^/]+$`)
	domain       = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)
)

// withDefaults fills in the defaults that depend on other settings.
func (s Settings) withDefaults() Settings {
	s.Protocol = cmp.Or(s.Protocol, CAS)
	s.SubjectMode = cmp.Or(s.SubjectMode, CSRNames)
	switch {
	case s.Credentials != "":
	case s.Protocol == MeshCA, s.Exchange != nil && s.CredentialsFile == "":
		s.Credentials = Token
	case s.CredentialsFile != "":
		s.Credentials = File
	default:
		s.Credentials = ADC
	}
	return s
}

// Validate checks the settings without access to files or the network. The error has the
// reason [ca.Invalid].
func (s Settings) Validate() error {
	s = s.withDefaults()
	if err := s.checkConnection(); err != nil {
		return err
	}
	if err := s.checkExchange(); err != nil {
		return err
	}
	switch s.Protocol {
	case CAS:
		return s.checkCAS()
	case MeshCA:
		return s.checkMeshCA()
	}
	return ca.Errorf(ca.Invalid, "protocol is %.256q: want cas or meshca", s.Protocol)
}

func (s Settings) checkConnection() error {
	switch {
	case s.Endpoint != "" && !isHostPort(s.Endpoint):
		return ca.Errorf(ca.Invalid, "endpoint is %.256q: write host:port, such as privateca.googleapis.com:443", s.Endpoint)
	case s.UniverseDomain != "" && !domain.MatchString(s.UniverseDomain):
		return ca.Errorf(ca.Invalid, "universe_domain is %.256q: write a domain, such as googleapis.com", s.UniverseDomain)
	case s.Credentials != ADC && s.Credentials != File && s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %.256q: want adc, file or token", s.Credentials)
	case (s.Credentials == File) != (s.CredentialsFile != ""):
		return ca.Errorf(ca.Invalid, "credentials is %q and credentials_file is %.256q: set credentials to file exactly if there is a file", s.Credentials, s.CredentialsFile)
	case strings.ContainsFunc(s.QuotaProject, func(r rune) bool { return r <= ' ' || r > '~' }):
		return ca.Errorf(ca.Invalid, "quota_project is %.256q: write a project's ID", s.QuotaProject)
	}
	return nil
}

func (s Settings) checkCAS() error {
	pool, template := poolName.FindStringSubmatch(s.CAPool), templateName.FindStringSubmatch(s.CertificateTemplate)
	switch {
	case pool == nil:
		return ca.Errorf(ca.Invalid, "ca_pool is %.256q: write projects/P/locations/L/caPools/N", s.CAPool)
	case s.CertificateTemplate != "" && template == nil:
		return ca.Errorf(ca.Invalid, "certificate_template is %.256q: write projects/P/locations/L/certificateTemplates/N", s.CertificateTemplate)
	case template != nil && template[1] != pool[1]:
		return ca.Errorf(ca.Invalid, "certificate_template is in %s and ca_pool in %s: both must be in one location", template[1], pool[1])
	case s.IssuingCA != "" && !authorityID.MatchString(s.IssuingCA):
		return ca.Errorf(ca.Invalid, "issuing_ca is %.256q: write the ID of a CA in the pool, the last part of its name", s.IssuingCA)
	case s.SubjectMode != CSRNames && s.SubjectMode != ReflectedSPIFFE:
		return ca.Errorf(ca.Invalid, "subject_mode is %.256q: want csr or reflected-spiffe", s.SubjectMode)
	case s.RootsInterval != 0 && s.RootsInterval < minInterval:
		return ca.Errorf(ca.Invalid, "roots_interval is %s: want a duration of at least %s, such as %s", s.RootsInterval, minInterval, defaultInterval)
	case s.Location != "":
		return ca.Errorf(ca.Invalid, "location is %.256q: it is for the protocol meshca; ca_pool has a location", s.Location)
	case s.CertificateAuthority != "":
		return ca.Errorf(ca.Invalid, "certificate_authority is %.256q: it is for the protocol meshca; set issuing_ca", s.CertificateAuthority)
	}
	return s.checkLabels()
}

func (s Settings) checkLabels() error {
	if n := len(s.Labels); n > maxLabels {
		return ca.Errorf(ca.Invalid, "labels has %d entries, more than %d", n, maxLabels)
	}
	for name, value := range s.Labels {
		if name == "" || len([]rune(name)) > maxLabel || len([]rune(value)) > maxLabel {
			return ca.Errorf(ca.Invalid, "labels has %.256q: %.256q: a name has 1 to %d characters, a value at most %d", name, value, maxLabel, maxLabel)
		}
	}
	return nil
}

func (s Settings) checkMeshCA() error {
	for name, value := range map[string]string{"ca_pool": s.CAPool, "issuing_ca": s.IssuingCA, "certificate_template": s.CertificateTemplate,
		"universe_domain": s.UniverseDomain} {
		if name == "universe_domain" && s.Exchange != nil {
			continue // that of the token service
		}
		if value != "" {
			return ca.Errorf(ca.Invalid, "%s is %.256q: it is for the protocol cas", name, value)
		}
	}
	switch {
	case s.SubjectMode != CSRNames || len(s.Labels) > 0 || s.RootsInterval != 0:
		return ca.Errorf(ca.Invalid, "subject_mode, labels and roots_interval are for the protocol cas")
	case s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %q: Mesh CA needs the token of a request: set credentials to token, or remove it", s.Credentials)
	case s.Endpoint == "":
		return ca.Errorf(ca.Invalid, "endpoint is not set: the protocol meshca needs the host:port of a server that speaks it")
	case s.CertificateAuthority != "" && !privateCA.MatchString(s.CertificateAuthority):
		return ca.Errorf(ca.Invalid, "certificate_authority is %.256q: write projects/P/locations/L/certificateAuthorities/N", s.CertificateAuthority)
	case s.zone() == "":
		return ca.Errorf(ca.Invalid, "location is %.256q: the protocol meshca needs a zone or region, such as us-central1-c, or the cluster's URL as in GKE_CLUSTER_URL, https://container.googleapis.com/v1/projects/P/locations/L/clusters/C", s.Location)
	}
	return nil
}

// zone returns the name of the location, or "" if Location has none.
func (s Settings) zone() string {
	if found := clusterURL.FindStringSubmatch(s.Location); found != nil {
		return found[1]
	}
	return zone.FindString(s.Location)
}

func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	number, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil && number > 0 && host != "" && !strings.ContainsAny(host, "/ @?#")
}
