package istioca_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/test/ratest"
)

// line is one of the audit log.
type line struct {
	Event, Door, Reason, Text string
	Count                     int
	Subject                   struct{ Namespace, Pod string }
}

func linesOf(t *testing.T, log *ratest.Audit) (all []line) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		all = append(all, l)
	}
	return all
}

func TestOwnRefusalsAreInTheAuditLogAndCounted(t *testing.T) {
	log := &ratest.Audit{}
	inBubble(t, func(m *mesh, p *parts) {
		battlefield(m, p)
		p.engine.Audit = log
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		for _, test := range []struct {
			token string
			wish  wish
			code  codes.Code
			pod   string
			says  string
		}{
			{"web-token", impersonating(ztunnel), codes.PermissionDenied, "web-0", `is not a configured node proxy: it asks for "` + ztunnel + `"`},
			{"ztunnel-token", impersonating("spiffe://cluster.local/ns/shop/sa/api"), codes.PermissionDenied, "ztunnel-1", "no pod of that service account runs on the node of the caller: a pod of service account shop/api"},
			{"web-token", fields("CertSigner", "slow"), codes.PermissionDenied, "web-0", `no rule allows the CertSigner "slow"`},
			{"web-token", fields("CertSigner", 7.0), codes.InvalidArgument, "web-0", "invalid metadata CertSigner: must be a string"},
			{"nobody-token", wish{identity: web}, codes.PermissionDenied, "", "no rule matches"},
		} {
			before := len(linesOf(t, log))
			for range 10 {
				m.as(conn, test.token, home).refused(test.wish, test.code)
			}
			lines := linesOf(t, log)[before:]
			if len(lines) != 1 || lines[0].Event != "refused" || lines[0].Door != "istio" || lines[0].Subject.Pod != test.pod || !strings.Contains(lines[0].Text, test.says) {
				t.Errorf("want one line with %q: %+v", test.says, lines)
			}
			time.Sleep(2*time.Minute - time.Second) // equal ones are counted in one line; not at the moment of another
			if lines = linesOf(t, log)[before:]; len(lines) != 2 || lines[1].Count != 9 || lines[1].Text != lines[0].Text {
				t.Errorf("want a second line for 9 more: %+v", lines)
			}
		}
	})
}

// What strangers do has no verified subject, and must not fill the audit log.
func TestStrangersAreNotInTheAuditLog(t *testing.T) {
	log := &ratest.Audit{}
	inBubble(t, func(m *mesh, p *parts) {
		battlefield(m, p)
		p.engine.Audit = log
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.as(conn, "forged", home).refused(wish{identity: web}, codes.Unauthenticated)
		if text := log.String(); text != "" {
			t.Error(text)
		}
	})
}
