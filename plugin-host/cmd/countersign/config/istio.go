package config

import (
	"fmt"
	"maps"
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
	"PROV_CERT":          "this version shows a mounted certificate to istiod alone, which CA_PROVIDER=Citadel or CA_ADDR chooses; unset it",
	"OUTPUT_CERTS":       "this version writes no certificates to files; unset it, and take them from the socket",
}

// istioWithoutEffect are warned about: nothing depends on them in this version.
var istioWithoutEffect = map[string]string{
	"CREDENTIAL_FETCHER_TYPE": "where a token comes from, which is a file in this version; see token_file",
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
	for name, value := range variables(environ) {
		if value != "" {
			set[name] = value
		}
	}
	citadel := choosesCitadel(set)
	var wrong problems
	for _, name := range slices.Sorted(maps.Keys(set)) {
		value := set[name]
		switch {
		case istioPaths[name] != "":
			found = append(found, Assignment{istioPaths[name], value, name})
		case istioWithoutEffect[name] != "":
			warnings = append(warnings, fmt.Sprintf("%s has no effect: it is about %s", name, istioWithoutEffect[name]))
		case isForCitadel(name) && citadel: // citadelFromIstio
		case istioRefused[name] != "" && !(name == "FILE_MOUNTED_CERTS" && value == "false"):
			wrong.say(name, fmt.Sprintf("%q", clip(value)), "", istioRefused[name])
		case isForCitadel(name):
			warnings = append(warnings, clip(name)+" has no effect: it is about the connection to istiod, which CA_PROVIDER=Citadel or CA_ADDR chooses")
		}
	}
	for _, read := range []func(map[string]string) ([]Assignment, []string, error){keyFromIstio, socketFromIstio, caFromIstio} {
		more, warned, err := read(set)
		wrong.check(err)
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

// caFromIstio: CA_PROVIDER names the provider, and CA_ADDR where its authority is:
// host:port for "citadel", which is also what an address alone means, and a folder
// for "file". Of other providers only they know what their address is.
func caFromIstio(set map[string]string) ([]Assignment, []string, error) {
	provider, address := strings.ToLower(set["CA_PROVIDER"]), set["CA_ADDR"]
	variable, folder := "CA_PROVIDER", isFolder(address)
	if provider == "" {
		variable = "CA_ADDR"
		switch {
		case address == "":
			return nil, nil, nil
		case folder:
			provider = fileProvider
		default:
			provider = citadelProvider
		}
	}
	if err := addressFits(set, provider); err != nil {
		return nil, nil, err
	}
	found := []Assignment{{"providers." + provider + ".name", provider, variable}, {"default_provider", provider, variable}}
	var more []Assignment
	var err error
	switch {
	case provider == citadelProvider:
		more, err = citadelFromIstio(set)
	case folder:
		more, err = folderFromIstio(address)
	}
	return append(found, more...), nil, err
}

func choosesCitadel(set map[string]string) bool {
	provider, address := strings.ToLower(set["CA_PROVIDER"]), set["CA_ADDR"]
	return provider == citadelProvider || provider == "" && address != "" && !isFolder(address)
}

// addressFits tells whether there can be a provider of that name at the address.
func addressFits(set map[string]string, provider string) error {
	name, address := clip(set["CA_PROVIDER"]), set["CA_ADDR"]
	switch {
	case !wire.ValidName(provider):
		return fmt.Errorf("CA_PROVIDER is %q: write the name of an installed provider, such as Citadel or File; \"countersign provider list\" shows them", name)
	case address == "", isFolder(address) && provider == fileProvider, !isFolder(address) && provider == citadelProvider:
		return nil
	case isFolder(address):
		return fmt.Errorf("CA_ADDR is %q while CA_PROVIDER is %q: a folder is for the provider \"file\"; unset one of them", clip(address), name)
	case provider == fileProvider:
		return fmt.Errorf("CA_ADDR is %q while CA_PROVIDER is %q: write file:///FOLDER, or unset one of them", clip(address), name)
	}
	return fmt.Errorf("CA_ADDR is %q while CA_PROVIDER is %q: CA_ADDR is for the providers \"citadel\" and \"file\"; others have their address in their settings in the configuration file", clip(address), name)
}

const fileProvider = "file"

func isFolder(address string) bool { return strings.HasPrefix(address, "file:") }

func folderFromIstio(address string) ([]Assignment, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host != "" || !path.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("CA_ADDR is %q: write file:///FOLDER, the folder of a CA for the provider \"file\", or host:port of istiod", clip(address))
	}
	return []Assignment{{"providers." + fileProvider + ".settings.dir", u.Path, "CA_ADDR"}}, nil
}
