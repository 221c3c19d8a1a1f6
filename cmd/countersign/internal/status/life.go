package status

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// width of the bar, in its own units.
const width = 1000

// rootsNotice is how long before the end of the last root the next one is due, as the alert has it,
// or a third of the bundle's lifetime.
const rootsNotice = 30 * 24 * time.Hour

// life is the lifetime of a certificate as a bar.
type life struct {
	From, Renew, Until time.Time // Renew is zero if no renewal is scheduled; in a bundle, the next root is due then
	Gone, Turn         int       // positions of now and of Renew
}

// LifeOf returns the lifetime of the held item.
func (r Report) LifeOf(i *secret.Item) life {
	l := life{From: i.Issued, Renew: i.RenewAt, Until: i.NotAfter}
	if i.Kind == secret.TrustBundle || l.From.IsZero() {
		l.From = i.NotBefore
	}
	if i.Kind == secret.TrustBundle && l.Renew.IsZero() && !l.Until.IsZero() {
		l.Renew = l.Until.Add(-min(rootsNotice, l.Until.Sub(l.From)/3))
	}
	l.Gone, l.Turn = l.along(r.At), l.along(l.Renew)
	return l
}

// Left is the part of the bar after the renewal point.
func (l life) Left() int { return width - l.Turn }

// Percent is how much of the lifetime is over.
func (l life) Percent() int { return l.Gone * 100 / width }

func (l life) along(t time.Time) int {
	whole := l.Until.Sub(l.From)
	if whole <= 0 {
		return width
	}
	return int(max(0, min(1, t.Sub(l.From).Seconds()/whole.Seconds())) * width)
}
