package istiocompat

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	hostaddress "github.com/countersign-dev/countersign/internal/host/address"
)

// Renamed has the settings of the variables that only have another name.
var Renamed = map[string]string{
	"TRUST_DOMAIN":                     "trust_domain",
	"POD_NAMESPACE":                    "namespace",
	"SERVICE_ACCOUNT":                  "service_account",
	"SECRET_TTL":                       "ttl",
	"SECRET_GRACE_PERIOD_RATIO":        "rotation.ratio",
	"SECRET_GRACE_PERIOD_RATIO_JITTER": "rotation.jitter",
}

// refused change where keys come from or go to, so ignoring them would only look like
// success.
var refused = map[string]string{
	"PROV_CERT":     "a mounted certificate is presented only to istiod, and another CA was chosen; unset it",
	fetcherVariable: "the metadata server's token is only for istiod and Google's CAs; write JWT, or unset it and set token.gce in the provider's entry",
}

// harmless reports values of refused variables that ask for nothing.
var harmless = map[string]func(string) bool{
	fetcherVariable: func(value string) bool { return value == jwtFetcher },
}

// withoutEffect only warn.
var withoutEffect = map[string]string{
	"SECRET_GRACE_DURATION":                  "it is for an earlier agent; set rotation.ratio (SECRET_GRACE_PERIOD_RATIO) instead",
	"SECRET_JOB_RUN_INTERVAL":                "it is for an earlier agent; rotation no longer needs an interval, see rotation.ratio and rotation.jitter",
	"STALED_CONNECTION_RECYCLE_RUN_INTERVAL": "it is for an earlier agent; stale connections are no longer swept, and drain_timeout limits how long they last at shutdown",
	"INITIAL_BACKOFF_MSEC":                   "it is for an earlier agent; the backoff follows what the CA answers",
}

// rest reads the variables that do not depend on each other.
func (t *translator) rest() {
	for _, name := range slices.Sorted(maps.Keys(t.set)) {
		t.read(name, t.set[name])
	}
}

func (t *translator) read(name, value string) {
	istiod, usual := t.choice.Provider == citadel, harmless[name]
	switch {
	case Renamed[name] != "":
		t.add(Renamed[name], value, name)
	case withoutEffect[name] != "":
		t.warn("%s has no effect: %s", name, withoutEffect[name])
	case name == "ISTIO_META_CLUSTER_ID" && t.gatewayOn, isForCitadel(name) && istiod, usual != nil && usual(value):
	case name == fetcherVariable && value == gceFetcher && t.choice.Provider == google:
	case refused[name] != "":
		t.reject(name, refused[name])
	case isForCitadel(name):
		t.warn("%.256s has no effect: it configures the connection to istiod, and another CA was chosen", name)
	}
}

// files reads where files come from and where they are written to.
func (t *translator) files() {
	if delay := t.set["FILE_DEBOUNCE_DURATION"]; delay != "" {
		t.add("files.debounce", delay, "FILE_DEBOUNCE_DURATION")
	}
	const name = "FILE_MOUNTED_CERTS"
	switch on, err := strconv.ParseBool(t.set[name]); {
	case t.set[name] == "" || err == nil && !on:
	case err != nil:
		t.reject(name, "must be true or false")
	case t.set["PROV_CERT"] != "":
		t.reject(name, "without a CA there is nothing to present PROV_CERT to; unset one of them")
	default:
		t.add("files.mounted", "only", name)
	}
	if folder := t.set["OUTPUT_CERTS"]; folder != "" {
		t.add("outputs.istio.folder", path.Clean(folder), "OUTPUT_CERTS")
	}
}

// gateway switches the two sockets as Istio's node agent did. By default the workload's is
// on, and the gateway's is off.
func (t *translator) gateway() {
	t.toggle("ENABLE_WORKLOAD_SDS", "socket.enabled")
	const variable = "ENABLE_INGRESS_GATEWAY_SDS"
	byVariable := t.toggle(variable, "gateway.enabled")
	if t.gatewayOn = byVariable || t.given.Gateway; !t.gatewayOn {
		return
	}
	if address := t.discovery(); address != "" {
		t.add("gateway.address", address, fieldPath(discoveryField))
	}
	if id := t.set["ISTIO_META_CLUSTER_ID"]; id != "" {
		t.add("gateway.cluster", id, "ISTIO_META_CLUSTER_ID")
	}
	if byVariable { // Istio's token is meant, too
		t.add("gateway.token_file", istioToken, variable)
	}
}

// toggle reads a variable that is true or false.
func (t *translator) toggle(name, setting string) (on bool) {
	if t.set[name] == "" {
		return false
	}
	on, err := strconv.ParseBool(t.set[name])
	if err != nil {
		t.reject(name, "must be true or false")
		return false
	}
	t.add(setting, strconv.FormatBool(on), name)
	return on
}

// key chooses ECDSA if that is the algorithm, else RSA if a size is set.
func (t *translator) key() {
	algorithm, curve, size := t.set["ECC_SIGNATURE_ALGORITHM"], t.set["ECC_CURVE"], t.set["WORKLOAD_RSA_KEY_SIZE"]
	t.oneOf("ECC_SIGNATURE_ALGORITHM", "must be ECDSA; unset it for the default", "ECDSA")
	t.oneOf("ECC_CURVE", "must be P256 or P384", "P256", "P384")
	t.oneOf("WORKLOAD_RSA_KEY_SIZE", "must be 2048, 3072 or 4096", "2048", "3072", "4096")
	t.encoding()
	switch {
	case algorithm == "" && size != "":
		if curve != "" {
			t.warn("ECC_CURVE has no effect: WORKLOAD_RSA_KEY_SIZE requests an RSA key; set ECC_SIGNATURE_ALGORITHM=ECDSA to use a curve")
		}
		t.add("key_type", "rsa-"+size, "WORKLOAD_RSA_KEY_SIZE")
	case curve == "P384":
		t.add("key_type", "ecdsa-p384", "ECC_CURVE")
	case algorithm != "":
		t.add("key_type", "ecdsa-p256", "ECC_SIGNATURE_ALGORITHM")
	case curve != "":
		t.add("key_type", "ecdsa-p256", "ECC_CURVE")
	}
	if algorithm != "" && size != "" {
		t.warn("WORKLOAD_RSA_KEY_SIZE has no effect: ECC_SIGNATURE_ALGORITHM requests an ECDSA key")
	}
}

func (t *translator) encoding() {
	switch on, err := strconv.ParseBool(t.set["PKCS8_KEY"]); {
	case t.set["PKCS8_KEY"] == "":
	case err != nil:
		t.reject("PKCS8_KEY", "must be true: keys are always PKCS #8")
	case !on:
		t.warn("PKCS8_KEY has no effect: keys are always PKCS #8, which every client reads")
	}
}

func (t *translator) socket() {
	const name = "WORKLOAD_IDENTITY_SOCKET_FILE"
	switch file := t.set[name]; {
	case file == "":
	case file != path.Base(file), strings.Trim(file, ".") == "":
		t.reject(name, "must be a file name without a folder; COUNTERSIGN_SOCKET takes a path")
	default:
		t.add("socket.path", "./"+path.Join(path.Dir(Socket), file), name)
	}
}

// ca chooses the CA and reads how to reach it.
func (t *translator) ca() {
	choice, found, err := chooser{t.set["CA_PROVIDER"], t.set["CA_ADDR"], t.discovery, t.given}.choose()
	t.choice, t.found = choice, append(t.found, found...)
	t.check(err)
	t.check(checkCertProvider(t.set["PILOT_CERT_PROVIDER"]))
	if address, _ := scalar(t.config.fields[discoveryField]); address == t.set["CA_ADDR"] {
		t.config.used[discoveryField] = true // set twice, as by Istio's injector
	}
	if t.choice.Provider == citadel {
		t.citadel()
	}
}

// discovery returns the address of istiod that PROXY_CONFIG has.
func (t *translator) discovery() string {
	address := t.field(discoveryField)
	if address != "" && !hostaddress.IsHostPort(address) {
		t.rejectField(discoveryField, "write host:port of istiod")
		return ""
	}
	return address
}

// checkCertProvider rejects an unknown source of istiod's root whatever CA is chosen: a
// misspelt one would use the default root.
func checkCertProvider(from string) error {
	signer, named := strings.CutPrefix(from, "k8s.io/")
	if named && signer != "" || slices.Contains([]string{"", "istiod", "kubernetes", "custom", "none"}, from) {
		return nil
	}
	return fmt.Errorf("PILOT_CERT_PROVIDER is %.256q: must be istiod, kubernetes, custom, none or k8s.io/SIGNER", from)
}
