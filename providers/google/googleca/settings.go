package googleca

import (
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// What the settings of one word may be.
const (
	CAS    = "cas"    // protocol: Certificate Authority Service
	MeshCA = "meshca" // protocol: Mesh CA

	CSRNames        = "csr"              // subject_mode: the names of the request
	ReflectedSPIFFE = "reflected-spiffe" // subject_mode: the caller's SPIFFE ID

	ADC   = "adc"   // credentials: Application Default Credentials
	File  = "file"  // credentials: those in credentials_file
	Token = "token" // credentials: the token of each request
)

// Settings say who signs and how it is asked. The fields with a JSON name are the
// provider's settings.
type Settings struct {
	// Protocol is [CAS] or [MeshCA]. Default: CAS.
	Protocol string `json:"protocol,omitempty" jsonschema:"cas for Certificate Authority Service, or meshca for a server that speaks Mesh CA's protocol (default cas)"`
	// CAPool is who signs, projects/P/locations/L/caPools/N. Required of CAS.
	CAPool string `json:"ca_pool,omitempty" jsonschema:"the pool that signs, projects/P/locations/L/caPools/N; required of cas"`
	// IssuingCA is the ID of the one CA of the pool that is to sign. Default: the
	// service chooses.
	IssuingCA string `json:"issuing_ca,omitempty" jsonschema:"ID of the one CA of the pool that is to sign (default the service chooses)"`
	// CertificateTemplate is projects/P/locations/L/certificateTemplates/N, in the
	// pool's location. Default: none.
	CertificateTemplate string `json:"certificate_template,omitempty" jsonschema:"template to sign by, projects/P/locations/L/certificateTemplates/N (default none)"`
	// SubjectMode is [CSRNames] or [ReflectedSPIFFE]. Default: CSRNames.
	SubjectMode string `json:"subject_mode,omitempty" jsonschema:"csr for the names of the request, or reflected-spiffe for the SPIFFE ID that the service knows its caller by (default csr)"`
	// Labels are put on each certificate, 64 at most. Default: none.
	Labels map[string]string `json:"labels,omitempty" jsonschema:"labels of each certificate (default none)"`
	// RootsInterval is the time between two questions for the pool's roots, a tenth
	// more or less. Default: 5m.
	RootsInterval Duration `json:"roots_interval,omitempty" jsonschema:"time between two questions for the pool's roots, such as 10m (default 5m)"`
	// Endpoint is host:port. Default: the service's own; required of MeshCA.
	Endpoint string `json:"endpoint,omitempty" jsonschema:"host:port of the service (default Google's own); required of meshca"`
	// UniverseDomain is whose cloud it is. Default: googleapis.com.
	UniverseDomain string `json:"universe_domain,omitempty" jsonschema:"domain of the cloud (default googleapis.com)"`
	// RootFile is a PEM file with the roots that the service's own certificate leads
	// to, read by Open. Default: the operating system's roots.
	RootFile string `json:"root_file,omitempty" jsonschema:"PEM file with the roots to verify the service's server with (default the operating system's)"`
	// QuotaProject is whose quota the calls count against. Default: the credentials'.
	QuotaProject string `json:"quota_project,omitempty" jsonschema:"project whose quota the calls count against (default that of the credentials)"`
	// Credentials are [ADC], [File] or [Token]. Default: Token for MeshCA, which
	// takes no others, and where there is an Exchange; else File where CredentialsFile is set, else ADC.
	Credentials string `json:"credentials,omitempty" jsonschema:"adc for Application Default Credentials, file for credentials_file, or token for the token of each request (default file where credentials_file is set, token for meshca and with exchange, else adc)"`
	// CredentialsFile is JSON as Google's tools write it, read by Open: the key of a
	// service account, or a configuration for another way to a token. Default: none.
	CredentialsFile string `json:"credentials_file,omitempty" jsonschema:"JSON file with a service account's key or another configuration of Google's tools (default none)"`
	// Location is a zone or region, or the URL of a cluster there as GKE_CLUSTER_URL
	// has it. Required of MeshCA.
	Location string `json:"location,omitempty" jsonschema:"for meshca: zone or region of the cluster, or the cluster's URL as in GKE_CLUSTER_URL"`

	// Exchange has the token of each request exchanged before. Default: it is Google's.
	Exchange *Exchange `json:"exchange,omitempty" jsonschema:"has the token of each request exchanged at Google's token service before (default it is one that Google takes)"`

	// Log takes what is found while the authority is used. Default: silent.
	Log *slog.Logger `json:"-"`
}

// Duration is a length of time as [time.ParseDuration] reads it, such as "10m".
// Empty means the default.
type Duration string

const (
	defaultInterval = 5 * time.Minute
	minInterval     = 10 * time.Second // each agent asks the service so often
	maxLabels       = 64
	maxLabel        = 63
)

// Lengths are the service's to judge: counted repetitions cost a start a millisecond.
var (
	poolName     = regexp.MustCompile(`^projects/[\w.:-]+/locations/([\w-]+)/caPools/[\w-]+$`)
	templateName = regexp.MustCompile(`^projects/[\w.:-]+/locations/([\w-]+)/certificateTemplates/[\w-]+$`)
	authorityID  = regexp.MustCompile(`^[\w-]+$`)
	zone         = regexp.MustCompile(`^[a-z0-9-]+$`)
	clusterURL   = regexp.MustCompile(`^https://[^/]+/v1\w*/projects/[^/]+/(?:locations|zones)/([a-z0-9-]+)/clusters/[^/]+$`)
	domain       = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)
)

// withDefaults fills in what follows from the rest.
func (s Settings) withDefaults() Settings {
	if s.Protocol == "" {
		s.Protocol = CAS
	}
	if s.SubjectMode == "" {
		s.SubjectMode = CSRNames
	}
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

// Validate checks the settings without looking at a file or the network. The error
// is of the reason [ca.Invalid].
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
	return ca.Errorf(ca.Invalid, "protocol is %.256q: cas or meshca is allowed", s.Protocol)
}

func (s Settings) checkConnection() error {
	switch {
	case s.Endpoint != "" && !isHostPort(s.Endpoint):
		return ca.Errorf(ca.Invalid, "endpoint is %.256q: write host:port, such as privateca.googleapis.com:443", s.Endpoint)
	case s.UniverseDomain != "" && !domain.MatchString(s.UniverseDomain):
		return ca.Errorf(ca.Invalid, "universe_domain is %.256q: write a domain, such as googleapis.com", s.UniverseDomain)
	case s.Credentials != ADC && s.Credentials != File && s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %.256q: adc, file or token is allowed", s.Credentials)
	case (s.Credentials == File) != (s.CredentialsFile != ""):
		return ca.Errorf(ca.Invalid, "credentials is %q and credentials_file is %.256q: a file is for the credentials \"file\", and for no others", s.Credentials, s.CredentialsFile)
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
		return ca.Errorf(ca.Invalid, "issuing_ca is %.256q: write the ID of a CA of the pool, the last part of its name", s.IssuingCA)
	case s.SubjectMode != CSRNames && s.SubjectMode != ReflectedSPIFFE:
		return ca.Errorf(ca.Invalid, "subject_mode is %.256q: csr or reflected-spiffe is allowed", s.SubjectMode)
	case s.Location != "":
		return ca.Errorf(ca.Invalid, "location is %.256q: that is for the protocol meshca; ca_pool names its own", s.Location)
	}
	if _, err := s.RootsInterval.parse(); err != nil {
		return err
	}
	return s.checkLabels()
}

func (s Settings) checkLabels() error {
	if n := len(s.Labels); n > maxLabels {
		return ca.Errorf(ca.Invalid, "labels has %d of them, %d are allowed", n, maxLabels)
	}
	for name, value := range s.Labels {
		if name == "" || len([]rune(name)) > maxLabel || len([]rune(value)) > maxLabel {
			return ca.Errorf(ca.Invalid, "labels has %.256q: %.256q: a name has 1 to %d characters, a value %d at most", name, value, maxLabel, maxLabel)
		}
	}
	return nil
}

func (s Settings) checkMeshCA() error {
	for name, value := range map[string]string{"ca_pool": s.CAPool, "issuing_ca": s.IssuingCA, "certificate_template": s.CertificateTemplate,
		"roots_interval": string(s.RootsInterval), "universe_domain": s.UniverseDomain} {
		if name == "universe_domain" && s.Exchange != nil {
			continue // that of the token service
		}
		if value != "" {
			return ca.Errorf(ca.Invalid, "%s is %.256q: that is for the protocol cas", name, value)
		}
	}
	switch {
	case s.SubjectMode != CSRNames || len(s.Labels) > 0:
		return ca.Errorf(ca.Invalid, "subject_mode and labels are for the protocol cas")
	case s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %q: Mesh CA takes the token of a request; write token, or nothing", s.Credentials)
	case s.Endpoint == "":
		return ca.Errorf(ca.Invalid, "endpoint is not set: the protocol meshca needs the host:port of a server that speaks it; no other CA is asked in its place")
	case s.zone() == "":
		return ca.Errorf(ca.Invalid, "location is %.256q: the protocol meshca needs a zone or region, such as us-central1-c, or the cluster's URL as in GKE_CLUSTER_URL, https://container.googleapis.com/v1/projects/P/locations/L/clusters/C", s.Location)
	}
	return nil
}

// zone returns the location by its name, or nothing where there is none.
func (s Settings) zone() string {
	if found := clusterURL.FindStringSubmatch(s.Location); found != nil {
		return found[1]
	}
	return zone.FindString(s.Location)
}

func (d Duration) parse() (time.Duration, error) {
	if d == "" {
		return defaultInterval, nil
	}
	parsed, err := time.ParseDuration(string(d))
	if err != nil || parsed < minInterval {
		return 0, ca.Errorf(ca.Invalid, "roots_interval is %.256q: use a duration of at least %s, such as %q", string(d), minInterval, defaultInterval)
	}
	return parsed, nil
}

func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	number, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil && number > 0 && host != "" && !strings.ContainsAny(host, "/ @?#")
}
