package kubeca

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestLeftoversAreDeletedOnceAnHour(t *testing.T) {
	c := newCluster(t)
	put := func(name, manager string, age time.Duration, decided bool) {
		o := c.issuing().order(signRequest(t, name))
		o.Metadata.Name, o.Metadata.UID, o.Metadata.Created = name, name, time.Now().Add(-age)
		o.Metadata.Labels[managedBy] = manager
		if decided {
			c.sign(&o)
		}
		c.set(func() { c.put(issuers+"/"+name, o, "ADDED") })
	}
	for i := range 7 {
		put(fmt.Sprintf("old-%d", i), managerName, 2*time.Hour, true)
	}
	put("left", managerName, 25*time.Hour, false)
	kept := map[string]bool{"others": true, "open": true, "fresh": true, "new": true}
	put("others", "helm", 48*time.Hour, true)
	put("open", managerName, 23*time.Hour, false)
	put("fresh", managerName, 30*time.Minute, true)
	with := open(t, c.issuing())
	sign(t, c, with)
	for _, o := range c.left() {
		if !kept[o.Metadata.Name] {
			t.Errorf("%s is left", o.Metadata.Name)
		}
	}
	if len(c.left()) != 3 {
		t.Errorf("%d are left", len(c.left()))
	}
	put("new", managerName, 48*time.Hour, true)
	sign(t, c, with)
	if len(c.left()) != 4 {
		t.Error("it swept again")
	}
	with.sweeps.next = time.Now()
	sign(t, c, with)
	if len(c.left()) != 3 {
		t.Error("it did not sweep again after an hour")
	}
}

// A right that is missing, and a server that lists without end, fail no certificate.
func TestFailedSweepFailsNoCertificate(t *testing.T) {
	c := newCluster(t)
	c.answers(http.MethodGet, http.StatusForbidden, "", `{"message":"no"}`)
	sign(t, c, open(t, c.issuing()))
}
