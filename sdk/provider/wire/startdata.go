package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const maxStartData = 64 << 10

// StartData is what a host hands to a provider process over the lifeline: one
// line of JSON, after which the descriptor only tells by its end that the process
// is to exit. All fields may be empty; it prints without its key.
type StartData struct {
	// ServerCert and ServerKey are PEM, made by the host for this start alone.
	ServerCert string `json:"server_cert,omitempty"`
	ServerKey  string `json:"server_key,omitempty"`
	// ClientCert is PEM: the one certificate that the host will present.
	ClientCert string `json:"client_cert,omitempty"`
}

// WriteTo writes the line.
func (d StartData) WriteTo(w io.Writer) (int64, error) {
	line, err := json.Marshal(d)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(append(line, '\n'))
	return int64(n), err
}

// ReadStartData reads the line, of 64 KiB at most; unknown fields are passed over.
// A host that is gone already is an [io.EOF].
func ReadStartData(r io.Reader) (StartData, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxStartData)).ReadBytes('\n')
	switch {
	case len(line) == maxStartData && err != nil:
		return StartData{}, fmt.Errorf("the start-up data has more than %d bytes in its line", maxStartData)
	case err != nil:
		return StartData{}, err
	}
	var d StartData
	if err := json.Unmarshal(line, &d); err != nil {
		// The text of a JSON error can quote the line, and so the key.
		return StartData{}, errors.New("the start-up data is not one line of JSON as PROTOCOL.md says")
	}
	return d, nil
}

// String tells what is there.
func (d StartData) String() string {
	return fmt.Sprintf("start-up data (server pair: %t, client certificate: %t)", d.ServerCert != "", d.ClientCert != "")
}

// GoString keeps %#v from printing the key.
func (d StartData) GoString() string { return d.String() }
