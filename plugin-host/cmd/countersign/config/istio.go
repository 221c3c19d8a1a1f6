package config

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// istioPaths are the variables of Istio's agent that are a setting of ours under
// another name.
var istioPaths = map[string]string{
	"TRUST_DOMAIN":                     "trust_domain",
	"POD_NAMESPACE":                    "namespace",
	"SERVICE_ACCOUNT":                  "service_account",
	"SECRET_TTL":                       "ttl",
	"SECRET_GRACE_PERIOD_RATIO":        "rotation.ratio",
	"SECRET_GRACE_PERIOD_RATIO_JITTER": "rotation.jitter",
}

// istioRefused would change where keys come from or go to; running without them
// would look like success.
var istioRefused = map[string]string{
	"PROV_CERT":     "this version shows a mounted certificate to istiod alone, and another authority was chosen; unset it",
	fetcherVariable: "this version gets the metadata server's token for istiod and Google's authorities; write JWT, or unset it, and set token.gce in the provider's entry",
}

// istioUsual are values of the refused ones that ask for nothing.
var istioUsual = map[string]func(string) bool{
	fetcherVariable: func(value string) bool { return value == jwtFetcher },
}

// istioWithoutEffect are warned about: nothing depends on them in this version.
var istioWithoutEffect = map[string]string{
	"SECRET_GRACE_DURATION":                  "an earlier agent; set rotation.ratio (SECRET_GRACE_PERIOD_RATIO) instead",
	"SECRET_JOB_RUN_INTERVAL":                "an earlier agent; rotation needs no interval any more, see rotation.ratio and rotation.jitter",
	"STALED_CONNECTION_RECYCLE_RUN_INTERVAL": "an earlier agent; connections need no sweeping any more, drain_timeout is how long they get at the end",
	"INITIAL_BACKOFF_MSEC":                   "an earlier agent; backoff needs no setting any more, it follows what the authority answers",
}

// istio is what the environment says in Istio's words.
type istio struct {
	set    map[string]string // without the empty ones
	choice Choice
	domain string // the trust domain
	// gatewayOn is that of the variables and of what is configured.
	gatewayOn bool
	found     []Assignment
	warnings  []string
	wrong     problems
}

// fromIstio reads the variables that Istio's agent knows, for what the file and the
// flags configure. None that is set is passed over in silence.
func fromIstio(environ []string, configured *Config) istio {
	e := istio{set: map[string]string{}, domain: cmp.Or(configured.TrustDomain, defaults().TrustDomain)}
	for name, value := range variables(environ) {
		if value != "" {
			e.set[name] = value
		}
	}
	e.domain = cmp.Or(e.set["TRUST_DOMAIN"], e.domain)
	e.ca(configured)
	e.files()
	e.gateway(configured)
	for _, name := range slices.Sorted(maps.Keys(e.set)) {
		e.read(name, e.set[name])
	}
	e.google(configured)
	e.key()
	e.socket()
	return e
}

// read takes one variable that stands for itself.
func (e *istio) read(name, value string) {
	istiod := e.choice.Provider == citadelProvider
	usual := istioUsual[name]
	switch {
	case istioPaths[name] != "":
		e.found = append(e.found, Assignment{istioPaths[name], value, name})
	case istioWithoutEffect[name] != "":
		e.warn("%s has no effect: it is about %s", name, istioWithoutEffect[name])
	case name == "ISTIO_META_CLUSTER_ID" && e.gatewayOn, isForCitadel(name) && istiod, usual != nil && usual(value):
	case name == fetcherVariable && value == gceFetcher && e.choice.Provider == googleProvider:
	case istioRefused[name] != "":
		e.wrong.say(name, fmt.Sprintf("%q", clip(value)), "", istioRefused[name])
	case isForCitadel(name):
		e.warn("%s has no effect: it is about the connection to istiod, and another authority was chosen", clip(name))
	}
}

func (e *istio) warn(format string, args ...any) {
	e.warnings = append(e.warnings, fmt.Sprintf(format, args...))
}

// ca chooses the authority, and says how to reach it.
func (e *istio) ca(configured *Config) {
	var err error
	var found []Assignment
	e.choice, found, err = chooser{e.set["CA_PROVIDER"], e.set["CA_ADDR"], configured}.choose()
	e.wrong.check(err)
	e.found = append(e.found, found...)
	e.wrong.check(checkCertProvider(e.set["PILOT_CERT_PROVIDER"]))
	if e.choice.Provider == citadelProvider {
		found, err := citadelFromIstio(e.set, e.choice, e.domain)
		e.wrong.check(err)
		e.found = append(e.found, found...)
	}
}

// files says what comes from files, and what is written to them.
func (e *istio) files() {
	found, err := filesFromIstio(e.set)
	e.wrong.check(err)
	e.found = append(e.found, found...)
}

// key: ECDSA where the algorithm says so, else RSA where a size is set.
func (e *istio) key() {
	algorithm, curve, size := e.set["ECC_SIGNATURE_ALGORITHM"], e.set["ECC_CURVE"], e.set["WORKLOAD_RSA_KEY_SIZE"]
	e.oneOf("ECC_SIGNATURE_ALGORITHM", "ECDSA is allowed; unset it for the default", "ECDSA")
	e.oneOf("ECC_CURVE", "P256 or P384 is allowed", "P256", "P384")
	e.oneOf("WORKLOAD_RSA_KEY_SIZE", "2048, 3072 or 4096 is allowed", "2048", "3072", "4096")
	e.encoding()
	keyType := func(value, variable string) { e.found = append(e.found, Assignment{"key_type", value, variable}) }
	switch {
	case algorithm == "" && size != "":
		if curve != "" {
			e.warn("ECC_CURVE has no effect: WORKLOAD_RSA_KEY_SIZE asks for an RSA key; set ECC_SIGNATURE_ALGORITHM=ECDSA for a curve")
		}
		keyType("rsa-"+size, "WORKLOAD_RSA_KEY_SIZE")
	case curve == "P384":
		keyType("ecdsa-p384", "ECC_CURVE")
	case algorithm != "":
		keyType("ecdsa-p256", "ECC_SIGNATURE_ALGORITHM")
	case curve != "":
		keyType("ecdsa-p256", "ECC_CURVE")
	}
	if algorithm != "" && size != "" {
		e.warn("WORKLOAD_RSA_KEY_SIZE has no effect: ECC_SIGNATURE_ALGORITHM asks for an ECDSA key")
	}
}

func (e *istio) encoding() {
	value := e.set["PKCS8_KEY"]
	switch on, err := strconv.ParseBool(value); {
	case value == "":
	case err != nil:
		e.wrong.say("PKCS8_KEY", fmt.Sprintf("%q", clip(value)), "", "true is allowed: keys are always PKCS #8")
	case !on:
		e.warn("PKCS8_KEY has no effect: keys are always PKCS #8, which every client reads")
	}
}

func (e *istio) oneOf(name, sentence string, allowed ...string) {
	if value := e.set[name]; value != "" && !slices.Contains(allowed, value) {
		e.wrong.say(name, fmt.Sprintf("%q", clip(value)), "", sentence)
	}
}

func (e *istio) socket() {
	const name = "WORKLOAD_IDENTITY_SOCKET_FILE"
	switch file := e.set[name]; {
	case file == "":
	case file != path.Base(file), strings.Trim(file, ".") == "":
		e.wrong.say(name, fmt.Sprintf("%q", clip(file)), "", "write a file name without a folder; COUNTERSIGN_SOCKET takes a whole path")
	default:
		e.found = append(e.found, Assignment{"socket.path", "./" + path.Join(path.Dir(DefaultSocket), file), name})
	}
}
