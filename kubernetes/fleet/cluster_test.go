package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestOnlyCertificateDataIsHeld(t *testing.T) {
	s := servers(t, "local")[0]
	all := map[string][]byte{"password": []byte("hunter2"), "cert": {1}, "key": {1}, "crl": {1}, "cacert": {1}, "tls.crt": {1}, "tls.key": {1}, "tls.ocsp-staple": {1}, "ca.crt": {1}, "ca.crl": {1}}
	s.put(secret("shop", "all", "", all))
	for i, kind := range otherTypes {
		s.put(secret("shop", fmt.Sprint("other", i), kind, all))
	}
	s.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "roots"}, Data: map[string]string{"ca.crt": "roots", "script": "long"}, BinaryData: map[string][]byte{"x": {1}}})
	c := start(t, s).ready(t).Local()
	got, err := c.Secret("shop", "all")
	if err != nil || len(got.Data) != len(all)-1 || got.Data["password"] != nil || got.Annotations != nil || got.ManagedFields != nil {
		t.Errorf("%v, %v", got, err)
	}
	for i, kind := range otherTypes {
		// This API server does not leave them out, though it is asked to.
		if got, err := c.Secret("shop", fmt.Sprint("other", i)); err != nil || len(got.Data) != 0 {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}
	roots, err := c.ConfigMap("shop", "roots")
	if err != nil || len(roots.Data) != 1 || roots.Data["ca.crt"] != "roots" || roots.BinaryData != nil {
		t.Errorf("%v, %v", roots, err)
	}
	for _, asked := range s.asked() {
		if strings.Contains(asked, "/api/v1/secrets?") && !strings.Contains(asked, "type%21%3Dhelm.sh") {
			t.Errorf("asked for all types: %s", asked)
		}
	}
}

func TestEachChangeIsNotifiedOnce(t *testing.T) {
	s := servers(t, "local")[0]
	web := func(text string) *corev1.Secret {
		return secret("shop", "web", "", map[string][]byte{"tls.crt": []byte(text)})
	}
	s.put(web("1"))
	r := start(t, s).ready(t)
	c := r.Local()
	until(t, "the cluster is told", func() bool { return r.told(Event{Cluster: "local"}) == 1 })
	event := Event{Cluster: "local", Kind: Secret, Namespace: "shop", Name: "web"}
	if n := r.told(event); n != 0 {
		t.Errorf("what was there at first was notified %d times", n)
	}
	s.put(web("2"))
	until(t, "the change is told", func() bool { return r.told(event) == 1 })
	if got, err := c.Secret("shop", "web"); err != nil || string(got.Data["tls.crt"]) != "2" {
		t.Errorf("%v, %v", got, err)
	}
	other := web("2")
	other.Annotations, other.Data["password"] = map[string]string{"a": "b"}, []byte("hunter2")
	s.put(other)
	roots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "roots"}}
	s.put(roots)
	until(t, "a ConfigMap is told", func() bool { return r.told(Event{"local", ConfigMap, "shop", "roots"}) == 1 })
	s.remove(other)
	until(t, "the end is told", func() bool { return r.told(event) == 2 }) // not the annotation
	if _, err := c.Secret("shop", "web"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
	if _, err := c.Secret("shop", "../shop/web"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an odd name: %v", err)
	}
}

func TestReturningAPIServerIsFollowedAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	web := func(text string) *corev1.Secret {
		return secret("shop", "web", "", map[string][]byte{"tls.crt": []byte(text)})
	}
	east.put(web("1"))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	c := r.synced(t, "east", east)
	for name, fault := range map[string]int{"it cuts": -1, "it knows us no more": http.StatusUnauthorized} {
		east.fail(fault)
		until(t, name+" is shown", func() bool {
			got := r.status("east")
			return got.Fault != "" && got.State == Away && got.Serving && !got.Away.IsZero()
		})
		if got, err := c.Secret("shop", "web"); err != nil || len(got.Data) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		east.put(web(name))
		east.fail(0)
		until(t, name+", and is back", func() bool {
			got, err := c.Secret("shop", "web")
			return err == nil && string(got.Data["tls.crt"]) == name && r.status("east").Fault == "" && r.status("east").State == Synced
		})
	}
	if after, _ := r.Cluster("east"); after != c {
		t.Error("the cluster was exchanged")
	}
	if strings.Count(r.logged(), "watch interrupted") < 2 || !strings.Contains(r.logged(), "watch resumed") {
		t.Errorf("the log: %s", r.logged())
	}
}

// Its watches may last for minutes after our credential there has expired.
func TestFailedReviewMarksClusterAway(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	c := r.synced(t, "east", east)
	until(t, "it is watched", func() bool { return east.Watches() == 2 })
	for status, want := range map[int]string{http.StatusUnauthorized: "our credential", http.StatusForbidden: "reviews: ", http.StatusBadGateway: "reviews: "} {
		east.refuses(status)
		if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: "another"}); !errors.Is(err, authn.ErrUnavailable) {
			t.Error(err)
		}
		if got := r.status("east"); got.State != Away || !strings.Contains(got.Fault, want) {
			t.Errorf("%d: it is %s: %s", status, got.State, got.Fault)
		}
		east.refuses(0)
		if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: ca.Token(fmt.Sprint("bad", status))}); !errors.Is(err, authn.ErrRefused) {
			t.Error(err)
		}
		if got := r.status("east"); got.State != Synced {
			t.Errorf("then it is %s: %s", got.State, got.Fault)
		}
	}
	if n := east.Watches(); n != 2 {
		t.Errorf("%d watches are left", n)
	}
}

// The API server leaves the watches of a deleted account open.
func TestDeletedAccountIsNoticedWithWatchesOpen(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	c := r.synced(t, "east", east)
	until(t, "it is watched", func() bool { return east.Watches() == 2 })
	east.refuses(http.StatusUnauthorized)
	c.recheck(t.Context())
	if got := r.status("east"); got.State != Away || !got.Serving || !strings.Contains(got.Fault, "our credential") {
		t.Errorf("it is %s: %s", got.State, got.Fault)
	}
	if n := east.Watches(); n != 2 {
		t.Errorf("%d watches are left", n)
	}
	east.refuses(0)
	c.recheck(t.Context())
	if got := r.status("east"); got.State != Synced {
		t.Errorf("then it is %s: %s", got.State, got.Fault)
	}
}

func TestCredentialIsCheckedTwiceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		last, checks := time.Now(), 0
		every(ctx, recheck, func(context.Context) {
			if pause := time.Since(last); pause > 30*time.Second {
				t.Errorf("a pause of %s", pause)
			}
			last = time.Now()
			checks++
		})
		if checks < 100 || checks > 200 {
			t.Errorf("%d checks in an hour", checks)
		}
	})
}

// deafInformer ends only when the test says so.
type deafInformer struct {
	cache.SharedIndexInformer
	end chan struct{}
}

func (d deafInformer) RunWithContext(context.Context) { <-d.end }

func TestStuckInformerIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		deaf := deafInformer{end: make(chan struct{})}
		time.AfterFunc(time.Hour, cancel)
		begin := time.Now()
		run(ctx, deaf)
		if took := time.Since(begin); took != time.Hour+endWithin {
			t.Errorf("it took %s", took)
		}
		close(deaf.end)
		synctest.Wait()
	})
}

func TestNotReadyBeforeLocalCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local")[0]
	s.fail(http.StatusForbidden)
	r := start(t, s)
	until(t, "it says why", func() bool { return strings.Contains(r.Ready().Error(), "the test says so") })
	if err := r.Ready(); strings.Contains(err.Error(), "credential-of") || !strings.Contains(err.Error(), `"local"`) {
		t.Error(err)
	}
	s.fail(0)
	r.ready(t)
	if got := r.Status(); len(got) != 1 || got[0].State != Synced || !got[0].Local || got[0].Server != s.URL {
		t.Errorf("%+v", got)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	s := servers(t, "local", "elsewhere")
	r := start(t, s[0]).ready(t)
	s[0].answer(http.RedirectHandler(s[1].URL, http.StatusTemporaryRedirect).ServeHTTP)
	if _, err := r.Local().Client().Discovery().ServerVersion(); !errors.Is(err, errRedirect) || len(s[1].asked()) != 0 {
		t.Errorf("%v; asked elsewhere: %q", err, s[1].asked())
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	local := servers(t, "local")[0].config()
	for name, cfg := range map[string]Config{
		"no local cluster": {LocalID: "local"},
		"no id":            {Local: local},
		"an odd id":        {Local: local, LocalID: "a/b"},
		"odd rules":        {Local: local, LocalID: "local", Rules: rulesThatAreNone},
		"a negative time":  {Local: local, LocalID: "local", GiveUp: -1},
		"an empty one":     {Local: local, LocalID: "local", Audiences: []string{""}},
		"an odd template":  {Local: local, LocalID: "local", ServiceAccounts: "x"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A warning is foreign text, and may repeat our credential: it must not go to the
// process's log past ours.
func TestAPIServerWarningsAreNotLogged(t *testing.T) {
	said := &running{} // by client-go, which has the logger for as long as the fleet runs
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(said, nil)))
	t.Cleanup(klog.ClearLogger)
	s := servers(t, "local")[0]
	r := start(t, s).ready(t)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "you are `+r.Header.Get("Authorization")+`"`)
		_, _ = io.WriteString(inJSON(w), "{}")
	})
	if _, err := r.Local().Client().Discovery().ServerVersion(); err != nil {
		t.Fatal(err)
	}
	r.end()
	if strings.Contains(said.logged(), "you are") {
		t.Errorf("it is logged: %s", said.logged())
	}
}

func TestClusterIDIsAValidSecretKey(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "Z9": true, "a.b-c_d": true, "..": true, strings.Repeat("x", 253): true,
		"": false, strings.Repeat("x", 254): false, "a|b": false, "a/b": false, "a b": false, "a\x00": false, "a\n": false, "ä": false, "`": false, "{": false, "@": false, "[": false, ":": false, "~": false,
	} {
		if isID(id) != want {
			t.Errorf("%.20q is taken: %t", id, !want)
		}
	}
}
