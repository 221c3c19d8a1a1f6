package status

import "strconv"

// Sharing is how an engine of this replica shares the quotas with others.
type Sharing struct {
	Engine string `json:"engine"` // istio or kubernetes, as in metrics
	// Members are the engines among which the quotas are divided; those that are gone count for a
	// while.
	Members int `json:"members"`
	// Error is why the record of shares cannot be kept: what this engine has will end.
	Error string `json:"error,omitempty"`
}

func (r Report) ofShares() (all []problem) {
	for _, s := range r.Sharing {
		if s.Error != "" {
			all = append(all, problem{
				Grade: bad, What: "The quotas of " + s.Engine + " cannot be shared", Detail: s.Error,
				Do: "Unless a newer version wrote the record, the share of this replica ends: it uses a hundredth of the quotas for 48 minutes, and then nothing. Check the API server of the home cluster, and the right to the Lease of shares.",
			})
		}
	}
	return all
}

func (t tables) sharing(r Report) {
	for i, s := range r.Sharing {
		if i == 0 {
			t.Head("QUOTAS OF", "ENGINES", "ERROR")
		}
		t.Line(s.Engine, strconv.Itoa(s.Members), s.Error)
	}
}
