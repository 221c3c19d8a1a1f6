package kubeca

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// sign asks for a certificate of web and verifies it as an agent does.
func sign(t *testing.T, c *cluster, with *CA) ca.SignRequest {
	t.Helper()
	req, key := testkit.Request(t, web, "web.example.org")
	reply, err := with.CSRSign(testkit.Within(t, patience), req)
	must(t, err)
	check := testkit.Check(t, req, key)
	if check.Roots = c.Bundle(); !with.settings.publishesRoots() {
		if check.Roots, err = pki.ParseBundle(reply.Roots); err != nil {
			t.Fatal(err)
		}
	} else if reply.Roots != nil {
		t.Error("the reply has roots beside those of Roots")
	}
	if _, err := check.Chain(reply.Chain); err != nil {
		t.Fatal(err)
	}
	return req
}

// fails asks for a certificate and returns the error, which has no token.
func fails(t *testing.T, with *CA, req ca.SignRequest, want *ca.Error, says ...string) error {
	t.Helper()
	_, err := with.CSRSign(testkit.Within(t, patience), req)
	testkit.Fails(t, err, ourToken, want, says...)
	return err
}

// hurried returns a client that does not wait long.
func hurried(t *testing.T, settings Settings) *CA {
	t.Helper()
	c := open(t, settings)
	c.longest = 50 * time.Millisecond
	return c
}

func TestSignerGetsRequestThatIsDeletedWhenSigned(t *testing.T) {
	c := newCluster(t)
	var asked object
	c.decide = func(o *object) { asked = *o; c.sign(o) }
	req := sign(t, c, open(t, c.direct()))
	want := spec{Request: req.CSR, Usages: []string{"digital signature", "server auth", "client auth"}, SignerName: "example.org/mesh", ExpirationSeconds: 3600}
	if !reflect.DeepEqual(asked.Spec, want) || asked.Metadata.Labels[managedBy] != managerName {
		t.Errorf("it asked %+v", asked)
	}
	if calls := c.took(); !slices.Equal(calls, []string{"POST", "WATCH", "DELETE"}) || len(c.left()) != 0 {
		t.Errorf("calls %q; %d objects are left", calls, len(c.left()))
	}
}

func TestIssuerReturnsRootsWithCertificate(t *testing.T) {
	c := newCluster(t)
	var asked object
	c.decide = func(o *object) { asked = *o; c.sign(o) }
	with := open(t, c.issuing())
	req := sign(t, c, with)
	want := spec{Request: req.CSR, Usages: []string{"digital signature", "server auth", "client auth"}, Issuer: &issuerRef{"mesh", "Issuer", "cert-manager.io"}, Duration: "1h0m0s"}
	if !reflect.DeepEqual(asked.Spec, want) {
		t.Errorf("it asked %+v", asked)
	}
	// The first certificate has leftovers looked for.
	if calls := c.took(); !slices.Equal(calls, []string{"POST", "WATCH", "DELETE", "GET"}) || len(c.left()) != 0 {
		t.Errorf("calls %q; %d objects are left", calls, len(c.left()))
	}
	_, err := with.Roots(t.Context())
	testkit.Fails(t, err, ourToken, ca.ErrUnimplemented)
}

func TestUsagesFitSignersOfKubernetes(t *testing.T) {
	for name, want := range map[string]string{
		"example.org/mesh": "digital signature,server auth,client auth", "kubernetes.io/kube-apiserver-client": "digital signature,client auth",
		"kubernetes.io/kube-apiserver-client-kubelet": "digital signature,client auth", "kubernetes.io/kubelet-serving": "digital signature,server auth",
	} {
		if got := strings.Join((Settings{SignerName: name}).usages(), ","); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := (Settings{SignerName: "kubernetes.io/kubelet-serving", Usages: []string{"client auth"}}).usages(); !slices.Equal(got, []string{"client auth"}) {
		t.Errorf("set: %q", got)
	}
}

func TestLifetimeIsTheRequestsAndTenMinutesAtLeast(t *testing.T) {
	c := newCluster(t)
	for ttl, want := range map[time.Duration]int32{0: 0, time.Second: 600, 10 * time.Minute: 600, 24 * time.Hour: 86400, 1 << 62: 1<<31 - 1} {
		if got := c.direct().order(ca.SignRequest{TTL: ttl}).Spec.ExpirationSeconds; got != want {
			t.Errorf("%s: %d seconds", ttl, got)
		}
	}
	for ttl, want := range map[time.Duration]string{0: "", 90 * time.Second: "1m30s"} {
		if got := c.issuing().order(ca.SignRequest{TTL: ttl}).Spec.Duration; got != want {
			t.Errorf("%s: %s", ttl, got)
		}
	}
}

func TestRepeatAfterLostReplyCostsNoCertificate(t *testing.T) {
	c := newCluster(t)
	with := open(t, c.direct())
	req := sign(t, c, with)
	_, err := with.CSRSign(t.Context(), req)
	must(t, err)
	if c.made != 1 {
		t.Errorf("%d objects for one request", c.made)
	}
	sign(t, c, with)
	if c.made != 2 {
		t.Errorf("%d objects for two requests", c.made)
	}
}

func TestCallsForOneRequestShareItsObject(t *testing.T) {
	c := newCluster(t)
	c.decide = nil
	with := open(t, c.direct())
	req, _ := testkit.Request(t, web)
	ctx := testkit.Within(t, patience)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := with.CSRSign(ctx, req); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, func() bool { return count(c, "WATCH") == 8 })
	c.update(c.sign)
	all.Wait()
	if c.made != 1 || len(c.left()) != 0 {
		t.Errorf("%d objects, %d are left", c.made, len(c.left()))
	}
}

// The first call is done, and its object deleted, before the second has read the object that it found.
func TestCallSharesTheCertificateOfAnObjectThatIsGone(t *testing.T) {
	c := newCluster(t)
	c.decide = nil
	with := open(t, c.direct())
	req, _ := testkit.Request(t, web)
	ctx := testkit.Within(t, patience)
	first := make(chan error, 1)
	go func() {
		_, err := with.CSRSign(ctx, req)
		first <- err
	}()
	await(t, func() bool { return count(c, "WATCH") == 1 })
	var ends sync.Once
	c.set(func() {
		c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && !r.URL.Query().Has("watch") {
				ends.Do(func() {
					c.update(c.sign)
					must(t, <-first)
				})
			}
			return false
		}
	})
	_, err := with.CSRSign(ctx, req)
	must(t, err)
	if c.made != 1 {
		t.Errorf("%d objects for one request", c.made)
	}
}

// count is how often a verb was used.
func count(c *cluster, verb string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.calls {
		if one == verb {
			n++
		}
	}
	return n
}

// await waits for what another goroutine does.
func await(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

func TestUnapprovedRequestStaysAndIsFoundAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for _, settings := range []func(*cluster) Settings{(*cluster).direct, (*cluster).issuing} {
		c := newCluster(t)
		c.decide = nil
		req, _ := testkit.Request(t, web)
		err := fails(t, hurried(t, settings(c)), req, ca.ErrPending, "waits for approval", settings(c).order(req).Metadata.Name)
		if ca.RetryAfter(err) != approvalPause || len(c.left()) != 1 {
			t.Errorf("%v, and %d objects", err, len(c.left()))
		}
		c.update(func(o *object) {
			o.condition("Approved", "True", "ByHand", "")
			o.condition("Ready", "False", "Pending", "the issuer is not ready "+ourToken.Reveal()[:8])
		})
		fails(t, hurried(t, settings(c)), req, ca.ErrUnavailable, "is approved and waits for its signer: Pending: the issuer is not ready")
		c.update(func(o *object) { o.Status.Conditions = nil; c.sign(o) })
		_, err = open(t, settings(c)).CSRSign(t.Context(), req) // by another process
		must(t, err)
		if c.made != 1 || len(c.left()) != 0 {
			t.Errorf("%d objects were made, %d are left", c.made, len(c.left()))
		}
	}
}

func TestApprovalDuringTheCallIsSeenAtOnce(t *testing.T) {
	c := newCluster(t)
	c.decide = nil
	go func() {
		for count(c, "WATCH") == 0 {
			time.Sleep(time.Millisecond)
		}
		c.update(func(o *object) { o.condition("Approved", "True", "ByHand", "") })
		c.update(func(o *object) { o.Status.Conditions = nil; c.sign(o) })
	}()
	sign(t, c, open(t, c.direct()))
	if calls := c.took(); !slices.Equal(calls, []string{"POST", "WATCH", "DELETE"}) {
		t.Errorf("calls %q", calls)
	}
}

func TestRefusalsAreReportedAndDeleted(t *testing.T) {
	for _, one := range []struct {
		conditions []condition
		want       *ca.Error
		says       string
		after      time.Duration
	}{
		{[]condition{{"Denied", "True", "Policy", "not\nthat name"}}, ca.ErrDenied, `was denied: Policy: not\nthat name`, 0},
		{[]condition{{"Approved", "True", "x", ""}, {"Failed", "True", "SignerValidationFailure", "no such usage"}}, ca.ErrInvalid, "does not fit its signer: SignerValidationFailure: no such usage", 0},
		{[]condition{{"Approved", "True", "x", ""}, {"Failed", "True", "Other", "out of paper"}}, ca.ErrInternal, "failed: Other: out of paper", failurePause},
		{[]condition{{"InvalidRequest", "True", "x", "no such duration"}}, ca.ErrInvalid, "is invalid: x: no such duration", 0},
		{[]condition{{"Ready", "False", "Denied", "no"}}, ca.ErrDenied, "was denied: Denied: no", 0},
		{[]condition{{"Ready", "False", "Failed", "out of ink"}}, ca.ErrInternal, "failed: Failed: out of ink", failurePause},
	} {
		c := newCluster(t)
		c.decide = func(o *object) { c.sign(o); o.Status.Conditions = one.conditions }
		settings := c.direct()
		if kind := one.conditions[0].Type; kind == "Ready" || kind == "InvalidRequest" {
			settings = c.issuing()
		}
		req, _ := testkit.Request(t, web)
		err := fails(t, open(t, settings), req, one.want, one.says)
		if ca.RetryAfter(err) != one.after || len(c.left()) != 0 {
			t.Errorf("%v: after %s, %d are left", err, ca.RetryAfter(err), len(c.left()))
		}
	}
}

// cert-manager marks a certificate as the right one.
func TestCertificateWithoutReadyIsNotTaken(t *testing.T) {
	c := newCluster(t)
	c.decide = func(o *object) { c.sign(o); o.Status.Conditions = nil }
	req, _ := testkit.Request(t, web)
	fails(t, hurried(t, c.issuing()), req, ca.ErrPending, "waits for approval")
}

func TestIssuerWithoutRootIsReportedAndCostsOneCertificate(t *testing.T) {
	c := newCluster(t)
	c.decide = func(o *object) { c.sign(o); o.Status.CA = nil }
	with := open(t, c.issuing())
	req, _ := testkit.Request(t, web)
	for range 2 {
		fails(t, with, req, ca.ErrUnavailable, "set bundle_file")
	}
	if c.made != 1 {
		t.Errorf("%d objects", c.made)
	}
}

// A client that may create objects may guess, or copy, a name.
func TestForeignObjectIsNeverUsed(t *testing.T) {
	c := newCluster(t)
	c.decide = nil
	req, _ := testkit.Request(t, web)
	other, _ := testkit.Request(t, web)
	for name, forge := range map[string]func(*object){
		"another key":    func(o *object) { o.Spec.Request = other.CSR },
		"another signer": func(o *object) { o.Spec.SignerName = "example.org/another" },
		"other usages":   func(o *object) { o.Spec.Usages = []string{"server auth"} },
		"another life":   func(o *object) { o.Spec.ExpirationSeconds = 86400 },
	} {
		forged := c.direct().order(req)
		forge(&forged)
		c.sign(&forged)
		forged.Metadata.UID = "forged"
		c.set(func() { c.put(signers+"/"+forged.Metadata.Name, forged, "ADDED") })
		fails(t, open(t, c.direct()), req, ca.ErrAborted, "asks for something else")
		if len(c.left()) != 1 {
			t.Errorf("%s: it was deleted", name)
		}
	}
	c.deleteAll()
	c.decide = c.sign
	_, err := open(t, c.direct()).CSRSign(t.Context(), req)
	must(t, err)
}

func TestNamesOfObjectsDifferByAllThatIsAsked(t *testing.T) {
	c := newCluster(t)
	req, _ := testkit.Request(t, web)
	again, longer, another := req, req, req
	longer.TTL, another.ID = 2*time.Hour, "another"
	seen := map[string]bool{}
	for _, o := range []object{c.direct().order(req), c.direct().order(longer), c.direct().order(another), c.issuing().order(req)} {
		seen[o.Metadata.Name] = true
	}
	if len(seen) != 4 || !seen[c.direct().order(again).Metadata.Name] {
		t.Errorf("%v", seen)
	}
}

// Whatever a watch does, the object is asked for.
func TestWithoutWatchTheObjectIsAskedFor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	line := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte(text)); return false }
	}
	for name, watch := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"forbidden":      func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, http.StatusForbidden, "no"); return false },
		"gone":           func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, http.StatusGone, "too old"); return false },
		"ends":           line(""),
		"too old":        line(`{"type":"ERROR","object":{"code":410}}`),
		"no JSON":        line("sesame"),
		"others' events": line(`{"type":"DELETED","object":{"metadata":{"uid":"other"}}}{"type":"MODIFIED","object":{"metadata":{"uid":"other"},"status":{"certificate":"eA=="}}}`),
		"a bookmark":     line(`{"type":"BOOKMARK","object":{"metadata":{"uid":"uid-1"},"status":{"certificate":"eA=="}}}`),
		"a changed spec": line(`{"type":"MODIFIED","object":{"metadata":{"uid":"uid-1"},"status":{"certificate":"eA=="}}}`),
		"a flood":        line(strings.Repeat(`{"type":"MODIFIED","object":{"metadata":{"uid":"other"},"pad":"`+strings.Repeat("x", 1<<20)+`"}}`, 9)),
	} {
		c := newCluster(t)
		c.watches = watch
		sign(t, c, open(t, c.direct()))
		if calls := c.took(); !slices.Equal(calls, []string{"POST", "WATCH", "GET", "DELETE"}) {
			t.Errorf("%s: calls %q", name, calls)
		}
	}
}

func TestDeletedObjectIsMadeAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for name, watches := range map[string]bool{"seen by watch": true, "seen by get": false} {
		c := newCluster(t)
		c.decide, c.watches = nil, func(w http.ResponseWriter, _ *http.Request) bool {
			if !watches {
				refuse(w, http.StatusForbidden, "no")
			}
			return watches
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for count(c, "WATCH") == 0 {
				time.Sleep(time.Millisecond)
			}
			c.deleteAll()
		}()
		req, _ := testkit.Request(t, web)
		with := open(t, c.direct())
		fails(t, with, req, ca.ErrUnavailable, "was deleted before it was signed")
		<-done
		c.set(func() { c.decide, c.watches = c.sign, nil })
		if _, err := with.CSRSign(t.Context(), req); err != nil || c.made != 2 {
			t.Errorf("%s: %v, %d objects", name, err, c.made)
		}
	}
}

func TestRequestThatMayNotBeDeletedIsStillSigned(t *testing.T) {
	c := newCluster(t)
	log := &testkit.Log{}
	settings := c.direct()
	settings.Log = log.Logger()
	c.answers(http.MethodDelete, http.StatusForbidden, "", `{"message":"no"}`)
	with := open(t, settings)
	sign(t, c, with)
	sign(t, c, with)
	if text := log.Take(); strings.Count(text, "level=WARN") != 1 || len(c.left()) != 2 {
		t.Errorf("%d are left, and the log is\n%s", len(c.left()), text)
	}
}

func TestHangingDeletionDelaysNoCertificateForLong(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	c := newCluster(t)
	c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			<-r.Context().Done()
		}
		return r.Method == http.MethodDelete
	}
	with := open(t, c.direct())
	sign(t, c, with)
	if len(c.left()) != 1 {
		t.Error("it was deleted")
	}
}

// A connection that died while calls use it is replaced: the next calls would join it.
func TestDeadConnectionIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	c := newCluster(t)
	c.decide = nil
	relay := newRelay(t, c.Listener.Addr().String())
	settings := c.direct()
	var err error
	if settings.URL, err = setting.ParseURL("https://" + relay.Addr().String()); err != nil {
		t.Fatal(err)
	}
	with := open(t, settings)
	req, _ := testkit.Request(t, web)
	done := make(chan error, 1)
	go func() {
		_, err := with.CSRSign(testkit.Within(t, patience), req)
		done <- err
	}()
	await(t, func() bool { return count(c, "WATCH") == 1 })
	relay.freeze()
	c.update(c.sign)
	must(t, <-done)
}

// relay forwards connections; frozen ones stay open and silent.
type relay struct {
	net.Listener
	mu     sync.Mutex
	frozen map[net.Conn]bool
	all    sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{Listener: listener, frozen: map[net.Conn]bool{}}
	r.all.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			r.mu.Lock()
			r.frozen[in], r.frozen[out] = false, false
			r.mu.Unlock()
			r.all.Go(func() { r.copy(out, in) })
			r.all.Go(func() { r.copy(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for conn := range r.frozen {
			_ = conn.Close()
		}
		r.mu.Unlock()
		r.all.Wait()
	})
	return r
}

func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.frozen {
		r.frozen[conn] = true
	}
}

func (r *relay) copy(to, from net.Conn) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		r.mu.Lock()
		silent := r.frozen[from]
		r.mu.Unlock()
		if err != nil && !silent {
			_ = to.Close()
		}
		if err != nil {
			return
		}
		if !silent {
			_, _ = to.Write(buffer[:n])
		}
	}
}

func TestMalformedCSRIsNotSent(t *testing.T) {
	c := newCluster(t)
	fails(t, open(t, c.direct()), ca.SignRequest{ID: "1", CSR: []byte("hello")}, ca.ErrInvalid)
	if len(c.took()) > 0 {
		t.Error("it was sent")
	}
}

func TestHangingServerCostsTheCallItsDeadline(t *testing.T) {
	c := newCluster(t)
	held := make(chan struct{})
	c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-r.Context().Done():
		case <-held:
		}
		return true
	}
	defer close(held)
	req, _ := testkit.Request(t, web)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := open(t, c.direct()).CSRSign(ctx, req)
	testkit.Fails(t, err, ourToken, ca.ErrDeadline, "did not answer POST "+signers+" in time")
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = open(t, c.direct()).CSRSign(ctx, req)
	testkit.Fails(t, err, ourToken, ca.ErrCanceled)
}

func TestCredentialFilesAreReadForEachCall(t *testing.T) {
	c := newCluster(t)
	with := open(t, c.direct())
	c.write(t, "token", []byte(stale))
	req, _ := testkit.Request(t, web)
	fails(t, with, req, ca.ErrUnauthenticated, "with 401")
	c.write(t, "token", []byte(ourToken))
	sign(t, c, with)
	c.write(t, "token", []byte("two words"))
	fails(t, with, req, ca.ErrUnavailable, "one token is needed")
	c.write(t, "token", []byte(ourToken))
	c.write(t, "root.pem", c.Bundle().PEM()) // of another authority
	fails(t, with, req, ca.ErrUnavailable, "cannot be reached", "certificate signed by unknown authority")
}

// Calls that run at once share a connection, with the token of each, and nothing is kept
// between calls.
func TestConcurrentCallsShareConnection(t *testing.T) {
	c := newCluster(t)
	c.decide = nil
	var dialed sync.Map // the callers' addresses
	c.answer = func(_ http.ResponseWriter, r *http.Request) bool { dialed.Store(r.RemoteAddr, true); return false }
	settings := c.direct()
	settings.TokenFile, settings.UseRequestToken = "", true
	with := open(t, settings)
	ctx := testkit.Within(t, patience)
	var all sync.WaitGroup
	ask := func(token ca.Token, want *ca.Error) {
		req, _ := testkit.Request(t, web)
		req.Token = token
		all.Go(func() {
			if _, err := with.CSRSign(ctx, req); want == nil && err != nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	ask(ourToken, nil)
	await(t, func() bool { return count(c, "WATCH") == 1 })
	for range 8 {
		ask(ourToken, nil)
		ask(stale, ca.ErrUnauthenticated)
	}
	await(t, func() bool { return count(c, "WATCH") == 9 })
	c.update(c.sign)
	all.Wait()
	n := 0
	dialed.Range(func(any, any) bool { n++; return true })
	if n != 1 || len(with.connections.held) != 0 {
		t.Errorf("%d connections, %d are kept", n, len(with.connections.held))
	}
}

func TestTokenOfRequestIsTheCredential(t *testing.T) {
	c := newCluster(t)
	settings := c.direct()
	settings.TokenFile, settings.UseRequestToken = "", true
	with := open(t, settings)
	req, _ := testkit.Request(t, web)
	fails(t, with, req, ca.ErrUnauthenticated, "the request has no token")
	req.Token = stale
	fails(t, with, req, ca.ErrUnauthenticated, "with 401: Unauthorized (secret)")
	req.Token = ourToken
	_, err := with.CSRSign(t.Context(), req)
	must(t, err)
}

func TestPodUsesItsServiceAccount(t *testing.T) {
	c := newCluster(t)
	before := account
	account = c.folder
	t.Cleanup(func() { account = before })
	settings := Settings{Issuer: &Issuer{Name: "mesh"}}
	to, err := settings.access("")
	testkit.Fails(t, err, ourToken, ca.ErrUnavailable, "ca.crt")
	c.write(t, "ca.crt", c.Bundle().PEM())
	c.write(t, "namespace", []byte("shop\n"))
	to, err = settings.access("")
	if err != nil || to.url.String() != "https://kubernetes.default.svc" || to.token != ourToken || to.namespace != "shop" || to.tls.RootCAs == nil {
		t.Errorf("%+v, %v", to.url, err)
	}
	root := settings
	c.write(t, "ca.crt", mustRead(t, c.file("root.pem")))
	if root.URL, err = setting.ParseURL(c.URL); err != nil {
		t.Fatal(err)
	}
	sign(t, c, open(t, root))
}

func TestNamespaceIsRequiredOutsideOfPods(t *testing.T) {
	c := newCluster(t)
	settings := c.issuing()
	settings.Namespace = ""
	req, _ := testkit.Request(t, web)
	fails(t, open(t, settings), req, ca.ErrUnavailable, "namespace is not set")
}
