package config

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
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
	"FILE_MOUNTED_CERTS": "this version serves what a provider signs and no mounted files; unset it",
	"PROV_CERT":          "this version has no provider that authenticates with a mounted certificate; unset it",
	"OUTPUT_CERTS":       "this version writes no certificates to files; unset it, and take them from the socket",
}

// istioWithoutEffect are warned about: nothing depends on them in this version.
var istioWithoutEffect = map[string]string{
	"PILOT_CERT_PROVIDER":     "the connection to istiod, which no provider of this version makes",
	"CA_ROOT_CA":              "the connection to istiod, which no provider of this version makes",
	"ISTIOD_SAN":              "the connection to istiod, which no provider of this version makes",
	"ISTIO_META_CLUSTER_ID":   "the connection to istiod, which no provider of this version makes",
	"ISTIO_META_CERT_SIGNER":  "the connection to istiod, which no provider of this version makes",
	"JWT_POLICY":              "a token, which no provider of this version is sent",
	"CREDENTIAL_FETCHER_TYPE": "a token, which no provider of this version is sent",
	"FILE_DEBOUNCE_DURATION":  "mounted files, which this version does not serve",

	"SECRET_GRACE_DURATION":                  "an earlier agent; set rotation.ratio (SECRET_GRACE_PERIOD_RATIO) instead",
	"SECRET_JOB_RUN_INTERVAL":                "an earlier agent; rotation needs no interval any more, see rotation.ratio and rotation.jitter",
	"STALED_CONNECTION_RECYCLE_RUN_INTERVAL": "an earlier agent; connections need no sweeping any more",
	"INITIAL_BACKOFF_MSEC":                   "an earlier agent; backoff follows what the authority answers",
}

// fromIstio reads the variables that Istio's agent knows. None that is set is
// passed over in silence.
func fromIstio(environ []string) (found []Assignment, warnings []string, err error) {
	set := map[string]string{}
	var wrong problems
	for name, value := range variables(environ) {
		if value == "" {
			continue
		}
		set[name] = value
		switch {
		case istioPaths[name] != "":
			found = append(found, Assignment{istioPaths[name], value, name})
		case istioWithoutEffect[name] != "":
			warnings = append(warnings, fmt.Sprintf("%s has no effect: it is about %s", name, istioWithoutEffect[name]))
		case strings.HasPrefix(name, "CA_HEADER_"):
			warnings = append(warnings, fmt.Sprintf("%.256s has no effect: no provider of this version sends headers", name))
		case istioRefused[name] != "" && !(name == "FILE_MOUNTED_CERTS" && value == "false"):
			wrong.say(name, fmt.Sprintf("%q", clip(value)), "", istioRefused[name])
		}
	}
	for _, read := range []func(map[string]string) ([]Assignment, []string, error){keyFromIstio, socketFromIstio, caFromIstio} {
		more, warned, err := read(set)
		if err != nil {
			wrong.add(err)
		}
		found, warnings = append(found, more...), append(warnings, warned...)
	}
	return found, warnings, wrong.err()
}

// keyFromIstio: ECDSA where the algorithm says so, else RSA where a size is set.
func keyFromIstio(set map[string]string) (found []Assignment, warnings []string, err error) {
	var wrong problems
	algorithm, curve, size := set["ECC_SIGNATURE_ALGORITHM"], set["ECC_CURVE"], set["WORKLOAD_RSA_KEY_SIZE"]
	if algorithm != "" && algorithm != "ECDSA" {
		wrong.say("ECC_SIGNATURE_ALGORITHM", fmt.Sprintf("%q", clip(algorithm)), "", "ECDSA is allowed; unset it for the default")
	}
	if curve != "" && curve != "P256" && curve != "P384" {
		wrong.say("ECC_CURVE", fmt.Sprintf("%q", clip(curve)), "", "P256 or P384 is allowed")
	}
	if size != "" && !slices.Contains([]string{"2048", "3072", "4096"}, size) {
		wrong.say("WORKLOAD_RSA_KEY_SIZE", fmt.Sprintf("%q", clip(size)), "", "2048, 3072 or 4096 is allowed")
	}
	if set["PKCS8_KEY"] == "false" {
		warnings = append(warnings, "PKCS8_KEY has no effect: keys are always PKCS #8, which every client reads")
	}
	switch {
	case algorithm == "" && size != "":
		if curve != "" {
			warnings = append(warnings, "ECC_CURVE has no effect: WORKLOAD_RSA_KEY_SIZE asks for an RSA key; set ECC_SIGNATURE_ALGORITHM=ECDSA for a curve")
		}
		found = append(found, Assignment{"key_type", "rsa-" + size, "WORKLOAD_RSA_KEY_SIZE"})
	case curve == "P384":
		found = append(found, Assignment{"key_type", "ecdsa-p384", "ECC_CURVE"})
	case algorithm != "":
		found = append(found, Assignment{"key_type", "ecdsa-p256", "ECC_SIGNATURE_ALGORITHM"})
	case curve != "":
		found = append(found, Assignment{"key_type", "ecdsa-p256", "ECC_CURVE"})
	}
	if algorithm != "" && size != "" {
		warnings = append(warnings, "WORKLOAD_RSA_KEY_SIZE has no effect: ECC_SIGNATURE_ALGORITHM asks for an ECDSA key")
	}
	return found, warnings, wrong.err()
}

func socketFromIstio(set map[string]string) ([]Assignment, []string, error) {
	const name = "WORKLOAD_IDENTITY_SOCKET_FILE"
	file := set[name]
	if file == "" {
		return nil, nil, nil
	}
	if file != path.Base(file) || file == "." || file == ".." {
		var wrong problems
		wrong.say(name, fmt.Sprintf("%q", clip(file)), "", "write a file name without a folder; COUNTERSIGN_SOCKET takes a whole path")
		return nil, nil, wrong.err()
	}
	return []Assignment{{"socket.path", "./" + path.Join(path.Dir(DefaultSocket), file), name}}, nil, nil
}

// caFromIstio: CA_PROVIDER names the provider, and CA_ADDR where its authority is.
// What an address means only the provider knows; of the ones that there are now
// "file" has one, a folder.
func caFromIstio(set map[string]string) ([]Assignment, []string, error) {
	provider, address := strings.ToLower(set["CA_PROVIDER"]), set["CA_ADDR"]
	var found []Assignment
	if provider != "" && !wire.ValidName(provider) {
		return nil, nil, fmt.Errorf("CA_PROVIDER is %q: write the name of an installed provider, such as File; \"countersign provider list\" shows them", clip(set["CA_PROVIDER"]))
	}
	if provider != "" {
		found = append(found,
			Assignment{"providers." + provider + ".name", provider, "CA_PROVIDER"},
			Assignment{"default_provider", provider, "CA_PROVIDER"})
	}
	if address == "" {
		return found, nil, nil
	}
	folder, err := folderOf(address)
	switch {
	case err != nil:
		return nil, nil, err
	case provider != "" && provider != fileProvider:
		return nil, nil, fmt.Errorf("CA_ADDR is %q while CA_PROVIDER is %q: a folder is for the provider \"file\"; unset one of them", clip(address), clip(set["CA_PROVIDER"]))
	case provider == "":
		found = append(found, Assignment{"default_provider", fileProvider, "CA_ADDR"})
	}
	return append(found, Assignment{"providers." + fileProvider + ".settings.dir", folder, "CA_ADDR"}), nil, nil
}

const fileProvider = "file"

func folderOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" || u.Host != "" || !path.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("CA_ADDR is %q: this version takes file:///FOLDER, the folder of a CA for the provider \"file\"; other providers have their address in their settings in the configuration file", clip(address))
	}
	return u.Path, nil
}
