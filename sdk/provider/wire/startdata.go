package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const maxStartData = 64 << 10 // bytes

// StartData is what a host sends to a provider process over the lifeline: one line of JSON.
// After it, the process exits when the stream ends. All fields may be empty. It
// prints without its key.
type StartData struct {
	// ServerCert and ServerKey are PEM, made by the host for this start only.
	ServerCert string `json:"server_cert,omitempty"`
	ServerKey  string `json:"server_key,omitempty"`
	// ClientCert is the one certificate that the host will present, PEM.
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

// ReadStartData reads the line, of at most 64 KiB, and ignores unknown fields. It returns
// [io.EOF] if the host is gone already.
func ReadStartData(r io.Reader) (StartData, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxStartData)).ReadBytes('\n')
	switch {
	case len(line) == maxStartData && err != nil:
		return StartData{}, fmt.Errorf("the start-up data line has more than %d bytes", maxStartData)
	case err != nil:
		return StartData{}, err
	}
	var d StartData
	if err := json.Unmarshal(line, &d); err != nil {
		// A JSON error may quote the line, and so the key.
		return StartData{}, errors.New("the start-up data is not one line of JSON")
	}
	return d, nil
}

// String describes the data without its content.
func (d StartData) String() string {
	return fmt.Sprintf("start-up data (server pair: %t, client certificate: %t)", d.ServerCert != "", d.ClientCert != "")
}

// GoString keeps %#v from printing the key.
func (d StartData) GoString() string { return d.String() }
