package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

// report is what is shown of a status, of the agent or of the services. All text is foreign.
type report struct {
	At            time.Time                     `json:"at"`
	NotReady      string                        `json:"not_ready"`
	Headline      struct{ Words, Grade string } `json:"headline"` // of an agent, as on its page
	Configuration struct{ Refused string }      `json:"configuration"`
	Build         struct{ Version string }      `json:"build"`
	Machine       struct {
		Host    string    `json:"host"`
		Started time.Time `json:"started"`
	} `json:"machine"`
	Secrets   []secret   `json:"secrets"`
	Providers []provider `json:"providers"`
	Outputs   []output   `json:"outputs"`
	JWTSVIDs  *tokens    `json:"jwt_svids"`
	WITSVIDs  *tokens    `json:"wit_svids"`
	OnDemand  struct {
		Rules []rule `json:"rules"`
	} `json:"on_demand"`
	Restart []string `json:"restart_pending"`
	Streams []stream `json:"open_streams"`
	Server  struct {
		Streams []stream `json:"streams"`
	} `json:"server"` // of the discovery service
	Authorities []authority `json:"authorities"` // of the registration authority
	Errors      []fault     `json:"errors"`
}

type secret struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Held      bool   `json:"held"`
	Asking    bool   `json:"asking"`
	Rotations int    `json:"rotations"`
	Item      struct {
		Serial    string    `json:"serial"`
		Authority string    `json:"authority"`
		Root      string    `json:"root_fingerprint"`
		NotAfter  time.Time `json:"not_after"`
		RenewAt   time.Time `json:"renew_at"`
	} `json:"item"`
	Failure struct {
		Reason string `json:"reason"`
	} `json:"failure"`
	Pending *struct{} `json:"pending"` // the CA has not decided on a request
	Expired time.Time `json:"expired_since"`
	Roots   []root    `json:"roots"`
}

// rule is one for names that clients ask for.
type rule struct {
	Name    string         `json:"name"`
	Held    int            `json:"held"`
	New     int            `json:"new"`
	Waiting int            `json:"waiting"`
	Expired int            `json:"expired"`
	Late    int            `json:"late"`
	Failing int            `json:"failing"`
	Budget  *int           `json:"budget_left"`
	Refused map[string]int `json:"refused"`
	Next    []expiry       `json:"next"`
}

type expiry struct {
	Name string    `json:"name"`
	Ends time.Time `json:"ends"`
	Late bool      `json:"late"`
}

// state describes the state of a rule's names.
func (r rule) state() (words string, well bool) {
	switch {
	case r.Expired > 0:
		return fmt.Sprintf("%d expired", r.Expired), false
	case r.Late > 0:
		return fmt.Sprintf("%d late", r.Late), false
	case r.Failing > 0:
		return fmt.Sprintf("%d failing", r.Failing), false
	}
	return "as planned", true
}

// refusals lists how many requests were refused, by reason.
func (r rule) refusals() string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		all = append(all, fmt.Sprintf("%s %d", reason, r.Refused[reason]))
	}
	return strings.Join(all, ", ")
}

type root struct {
	Fingerprint string    `json:"fingerprint"`
	Subject     string    `json:"subject"`
	NotAfter    time.Time `json:"not_after"`
	KeptUntil   time.Time `json:"kept_until"`
}

type provider struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Version   string `json:"version"`
	Restarts  int    `json:"restarts"`
	LastError string `json:"last_error"`
}

type output struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Written time.Time `json:"written"`
	Failure struct {
		Text string `json:"text"`
	} `json:"failure"`
}

// tokens are the JWT-SVIDs or the WIT-SVIDs that a provider signs.
type tokens struct {
	Provider string       `json:"provider"`
	State    string       `json:"state"`
	Keys     []string     `json:"keys"`
	Held     int          `json:"held"`
	Signed   int          `json:"signed"`
	Refused  int          `json:"refused_audiences"`
	Failing  bool         `json:"failing"`
	Failure  tokenFailure `json:"failure"`
	Watch    tokenFailure `json:"keys_failure"`
}

type tokenFailure struct {
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	At     time.Time `json:"at"`
}

// well reports whether nothing is to be done.
func (j *tokens) well() bool { return j == nil || j.State == "offered" || j.State == "waiting" }

// trouble is what is wrong now.
func (j *tokens) trouble() string {
	for _, f := range []tokenFailure{j.Watch, j.Failure} {
		if !j.well() && f.Reason != "" {
			return f.Reason + ": " + f.Text
		}
	}
	return ""
}

type stream struct {
	Caller   string    `json:"caller"`
	Identity string    `json:"identity"`
	Node     string    `json:"node"`
	Since    time.Time `json:"since"`
	LastPush time.Time `json:"last_push"`
	Pushed   int       `json:"pushed"`
	Acked    int       `json:"acked"`
	Nacked   int       `json:"nacked"`
}

type authority struct {
	Name     string  `json:"name"`
	Waiting  int     `json:"waiting"`
	InFlight int     `json:"in_flight"`
	Oldest   float64 `json:"oldest_seconds"`
	Held     float64 `json:"held_seconds"`
	Rate     float64 `json:"rate"`
}

type fault struct {
	At     time.Time `json:"at"`
	Where  string    `json:"where"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	Now    bool      `json:"now"`
}

// state describes a secret's state.
func (s secret) state() (words string, well bool) {
	switch {
	case !s.Expired.IsZero():
		return "expired", false
	case !s.Held && s.Pending != nil:
		return "not held, pending at the CA", false
	case !s.Held:
		return "not held", false
	case s.Failure.Reason != "":
		return "held, failing", false
	case s.Pending != nil:
		return "held, renewal pending at the CA", true
	case s.Asking:
		return "held, renewing", true
	}
	return "held", true
}

// rank is the order of secrets: those that are not held come first.
func (s secret) rank() int {
	_, well := s.state()
	switch {
	case !s.Held:
		return 0
	case !well:
		return 1
	}
	return 2
}

// summary describes the state in words, with the color of its grade: an agent's own headline, else
// what the status of a service has.
func (r report) summary() (words string, color cli.Color) {
	if r.Headline.Words != "" {
		return r.Headline.Words, grades[r.Headline.Grade]
	}
	held := 0
	for _, s := range r.Secrets {
		if s.Held {
			held++
		}
	}
	ready := 0
	for _, p := range r.Providers {
		if p.State == "ready" {
			ready++
		}
	}
	words, color = fmt.Sprintf("%d of %d secrets held.", held, len(r.Secrets)), grade(held == len(r.Secrets))
	if len(r.Secrets) == 0 {
		words = "Ready."
	}
	if r.NotReady != "" {
		words, color = "Not ready: "+strings.TrimSuffix(r.NotReady, ".")+".", cli.Red
	}
	for _, problem := range []struct {
		words string
		is    bool
	}{
		{fmt.Sprintf("%d of %d providers ready.", ready, len(r.Providers)), ready < len(r.Providers)},
		{"The changed configuration was refused.", r.Configuration.Refused != ""},
		{"A restart is pending.", len(r.Restart) > 0},
	} {
		if problem.is {
			words += " " + problem.words
			if color == cli.Green {
				color = cli.Yellow
			}
		}
	}
	return words, color
}

var grades = map[string]cli.Color{"good": cli.Green, "fair": cli.Yellow, "bad": cli.Red}
