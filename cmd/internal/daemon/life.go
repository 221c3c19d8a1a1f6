package daemon

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Process identifies the process of a report, and what it waits for.
type Process struct {
	Machine overview.Machine `json:"machine"`
	// Addresses are those it serves at, by their setting.
	Addresses     map[string]string      `json:"addresses,omitempty"`
	Configuration overview.Configuration `json:"configuration"` // the last reload
	// Restart lists what waits for a restart.
	Restart []string `json:"restart_pending,omitempty"`
}

// Life remembers what a [Process] is made of. It is safe for concurrent use; a nil one is
// empty.
type Life struct {
	born Process
	read [sha256.Size]byte // what the file was; zero: the file is not watched

	mu      sync.Mutex
	reload  overview.Configuration
	pending []string
}

// NewLife describes this process when it starts, with the configuration file and the addresses of
// settings; empty ones are left out.
func NewLife(file string, addresses map[string]string) *Life {
	l := &Life{born: Process{Machine: overview.ThisMachine(), Addresses: map[string]string{}}}
	l.born.Machine.Config = file
	for setting, address := range addresses {
		if address != "" {
			l.born.Addresses[setting] = address
		}
	}
	return l
}

// WatchFile is for a program that does not reload: a file that is not as it was read needs a
// restart. A ConfigMap changes below a running pod.
func (l *Life) WatchFile() { l.read, _ = sumOf(l.born.Machine.Config) }

// Reloaded records a reload: the settings that wait for a restart, or why it was refused.
func (l *Life) Reloaded(at time.Time, pending []string, refused error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reload = (overview.Configuration{At: at}); refused != nil {
		l.reload.Refused = wire.CleanText(refused.Error(), "")
		return
	}
	l.pending = pending
}

// Report returns the state at present.
func (l *Life) Report() Process {
	if l == nil {
		return Process{}
	}
	l.mu.Lock()
	p := l.born
	p.Configuration, p.Restart = l.reload, slices.Clone(l.pending)
	l.mu.Unlock()
	if l.read != [sha256.Size]byte{} {
		if now, ok := sumOf(p.Machine.Config); ok && now != l.read {
			p.Restart = append(p.Restart, "the configuration file")
		}
	}
	if p.Machine.Replaced() {
		p.Restart = append(p.Restart, "the program's binary")
	}
	return p
}

// maxFile is how much of a configuration file is compared.
const maxFile = 16 << 20

// sumOf returns a file's digest; not of a pipe, which can be read only once.
func sumOf(path string) (sum [sha256.Size]byte, ok bool) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return sum, false
	}
	f, err := os.Open(path) // #nosec G304 -- the operator's own file
	if err != nil {
		return sum, false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxFile)); err != nil {
		return sum, false
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}

// Problems returns what is wrong with the process itself.
func (p Process) Problems() (all []Problem) {
	if p.Configuration.Refused != "" {
		all = append(all, Problem{
			Grade: Fair, What: "The changed configuration was refused", Detail: p.Configuration.Refused, At: p.Configuration.At,
			Do: "The old one stays in force. Correct the file, and send SIGHUP.",
		})
	}
	if len(p.Restart) > 0 {
		all = append(all, Problem{
			Grade: Fair, What: "A restart is pending", Detail: "for " + strings.Join(p.Restart, ", "),
			Do: "The startup settings apply until then. Restart one replica after the other.",
		})
	}
	return all
}

// WriteTo writes one line for each fact, for a terminal.
func (p Process) WriteTo(w io.Writer) (n int64, err error) {
	var text strings.Builder
	if m := p.Machine; m.PID != 0 {
		fmt.Fprintf(&text, "machine %s, process %d, started %s\n", m.Host, m.PID, Moment(m.Started))
	}
	if p.Machine.Config != "" {
		fmt.Fprintf(&text, "configuration %s\n", p.Machine.Config)
	}
	if at := p.Configuration.At; !at.IsZero() {
		fmt.Fprintf(&text, "last reload %s\n", Moment(at))
	}
	if len(p.Restart) > 0 {
		fmt.Fprintf(&text, "restart pending for %s\n", strings.Join(p.Restart, ", "))
	}
	wrote, err := io.WriteString(w, text.String())
	return int64(wrote), err
}
