package token

import (
	"encoding/json"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const execVersion = "client.authentication.k8s.io/v1"

// execCredential is the part of kubectl's format used here
// (kubernetes.io/docs/reference/config-api/client-authentication.v1).
type execCredential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Status     *struct {
		Token               string `json:"token"`
		ExpirationTimestamp string `json:"expirationTimestamp"`
	} `json:"status"`
}

func parseExecCredential(output []byte, from string) (ca.Bearer, error) {
	var read execCredential
	// The encoding/json error may quote the output, so it is dropped.
	if json.Unmarshal(output, &read) != nil {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s did not print an ExecCredential in JSON", from)
	}
	switch {
	case read.Kind != "ExecCredential" || read.APIVersion != execVersion:
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s printed something else than an ExecCredential of %s", from, execVersion)
	case read.Status == nil || read.Status.Token == "":
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s printed an ExecCredential without a token, which is the only credential that is used here", from)
	}
	got, err := parse([]byte(read.Status.Token), from+" printed a token that")
	if err != nil || read.Status.ExpirationTimestamp == "" {
		return got, err
	}
	if got.Expiry, err = time.Parse(time.RFC3339, read.Status.ExpirationTimestamp); err != nil {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s printed an invalid expirationTimestamp; want RFC 3339", from)
	}
	return got, nil
}
