package podcert

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
)

func TestRefreshIsSpreadAndWithinTheAPIServersBounds(t *testing.T) {
	begin := time.Now().Truncate(time.Second)
	for name, c := range map[string]struct{ life, path, from, to time.Duration }{
		"a day":                       {24 * time.Hour, 24 * time.Hour, 9*time.Hour + 35*time.Minute, 14*time.Hour + 25*time.Minute},
		"the least":                   {time.Hour, time.Hour, 23 * time.Minute, 37 * time.Minute},
		"an intermediate ends before": {24 * time.Hour, 4 * time.Hour, 95 * time.Minute, 145 * time.Minute},
		"an intermediate ends soon":   {24 * time.Hour, 12 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		"less than the door takes":    {15 * time.Minute, 15 * time.Minute, 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			drawn := map[time.Duration]bool{}
			for range 200 {
				at := refreshAt(ra.Certificate{NotBefore: begin, NotAfter: begin.Add(c.life), Ends: begin.Add(c.path)}).Sub(begin)
				if at < c.from || at > c.to || at%time.Second != 0 {
					t.Fatalf("%s after the start, want %s to %s", at, c.from, c.to)
				}
				drawn[at] = true
			}
			if c.from < c.to && len(drawn) < 100 {
				t.Errorf("%d different times of 200", len(drawn))
			}
		})
	}
}
