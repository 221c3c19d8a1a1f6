package fleet

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// small are limits that a test reaches at once.
var small = Limits{Bytes: 1 << 20, Objects: 100, Response: 64 << 10}

// endless writes the same again and again, with a number for %d, as long as it is read.
func endless(w io.Writer, text string) {
	numbered := strings.Contains(text, "%d")
	for i := 0; ; i++ {
		next := text
		if numbered {
			next = fmt.Sprintf(text, i)
		}
		if _, err := io.WriteString(w, next); err != nil {
			return
		}
	}
}

func inJSON(w http.ResponseWriter) http.ResponseWriter {
	w.Header().Set("Content-Type", "application/json")
	return w
}

// hostile answers watches with one handler, and lists with another.
func hostile(watch, list func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			watch(inJSON(w), r)
		} else {
			list(inJSON(w), r)
		}
	}
}

// older servers stream no lists.
func older(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("sendInitialEvents") {
		refuse(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		return
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func kindOf(r *http.Request) string {
	if strings.HasSuffix(r.URL.Path, "secrets") {
		return "Secret"
	}
	return "ConfigMap"
}

func list(items string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"%sList","metadata":{"resourceVersion":"1","continue":"more"},"items":[`, kindOf(r))
		if items != "" {
			endless(w, items)
		}
		page := r.URL.Query().Get("continue")
		_, _ = fmt.Fprintf(w, `{"metadata":{"namespace":"shop","name":"%x%d"}}]}`, page, time.Now().UnixNano())
	}
}

func events(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		endless(w, strings.ReplaceAll(text, "KIND", kindOf(r)))
	}
}

// bomb is a page that has a thousand times the length of what is sent.
func bomb(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	packed := gzip.NewWriter(w)
	_, _ = io.WriteString(packed, `{"apiVersion":"v1","kind":"SecretList","items":[`+strings.Repeat(" ", 2*int(small.Response)))
	_ = packed.Close()
}

const added = `{"type":"ADDED","object":{"apiVersion":"v1","kind":"KIND","metadata":{"namespace":"shop","name":"n%d"}`

// whatTakesTooMuch is what an API server may try, and what is said of it.
var whatTakesTooMuch = map[string]struct {
	answer http.HandlerFunc
	want   string
}{
	"an endless list of pages":    {hostile(older, list("")), "more than 100 secrets and config maps"},
	"an endless page":             {hostile(older, list(`{"metadata":{"namespace":"shop","name":"n%d"}},`)), "an object of more than 65536 bytes"},
	"many that are empty":         {hostile(older, list("{},")), "an object of more than 65536 bytes"},
	"many that are empty in one":  {hostile(older, list(`{"metadata":{"managedFields":[`+strings.Repeat("{},", 1000)+`{}]}},`)), "an object of more than 65536 bytes"},
	"a page that is unpacked":     {hostile(older, bomb), "an object of more than 65536 bytes"},
	"an endless stream of a list": {hostile(events(added+"}}\n"), list("")), "more than 100 secrets and config maps"},
	"a stream of large ones":      {hostile(events(added+`,"data":{"ca.crt":"`+strings.Repeat("QUJD", 10_000)+`"}}}`+"\n"), list("")), "of more than 1048576 bytes"},
	"a stream of long names":      {hostile(events(strings.Replace(added, `"n%d"`, `"`+strings.Repeat("n", 50_000)+`%d"`, 1)+"}}\n"), list("")), "of more than 1048576 bytes"},
	"one giant object in a watch": {hostile(events(`{"type":"ADDED","object":{"kind":"KIND","apiVersion":"v1","data":{"a":"`+strings.Repeat("QUJD", 10_000)), list("")), "an event of more than 65536 bytes"},
	"an event of empty values":    {hostile(events(`[[],`), list("")), "an event of more than 65536 bytes"},
	"nothing but white space":     {hostile(events("\n\n\n\n"), list("")), "an event of more than 65536 bytes"},
	"an endless error":            {func(w http.ResponseWriter, _ *http.Request) { refuseAtLength(w) }, "a response of more than 1048576 bytes"},
	"an endless error in no words": {func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "", http.StatusInternalServerError)
		endless(w, "error")
	}, "a response of more than 1048576 bytes"},
}

func refuseAtLength(w http.ResponseWriter) {
	inJSON(w).WriteHeader(http.StatusForbidden)
	endless(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+strings.Repeat("no ", 10_000))
}

func TestExcessiveClusterIsEndedAlone(t *testing.T) {
	for name, c := range whatTakesTooMuch {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servers(t, "local", "east", "west")
			s[1].answer(c.answer)
			s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig(""), "west": s[2].kubeconfig("")}))
			r := start(t, s[0], func(c *Config) { c.Limits = small })
			west := r.synced(t, "west", s[2])
			until(t, "it is failed", func() bool { return r.status("east").State == Failed })
			got := r.status("east")
			if !strings.Contains(got.Fault, c.want) || !strings.Contains(got.Fault, "; retrying in ") || got.Serving {
				t.Errorf("%+v", got)
			}
			r.ready(t)
			r.letGo(t, "east", s[1])
			if still, ok := r.Cluster("west"); !ok || still != west || r.status("west").State != Synced || r.status("local").State != Synced {
				t.Errorf("the others: %+v", r.Status())
			}
		})
	}
}

// letGo waits until nothing goes to a cluster, and nothing of it is held.
func (r *running) letGo(t *testing.T, id string, by *apiServer) {
	t.Helper()
	if _, known := r.Cluster(id); known {
		t.Error("it is still handed out")
	}
	r.ending.Wait()
	until(t, "nothing goes there", func() bool { return by.Watches() == 0 && by.Open() == 0 })
}

func TestOversizedReviewEndsCluster(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	c := r.synced(t, "east", east)
	east.Set(func() {
		east.Instead = func(w http.ResponseWriter, _ *http.Request) { endless(inJSON(w), `{"a":`) }
	})
	if _, err := c.Client().Discovery().ServerVersion(); !errors.As(err, new(*excess)) {
		t.Error(err)
	}
	until(t, "it is failed", func() bool { return strings.Contains(r.status("east").Fault, "a response of more than 1048576 bytes") })
	if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: "good"}); !errors.Is(err, authn.ErrUnavailable) {
		t.Error(err)
	}
}

// The local cluster may have what no remote one may.
func TestLocalClusterHasNoLimits(t *testing.T) {
	s := servers(t, "local")[0]
	for i := range 200 {
		s.put(secret("shop", fmt.Sprint(i), "", map[string][]byte{"tls.crt": make([]byte, 10<<10)}))
	}
	s.put(secret("shop", "large", "", map[string][]byte{"tls.crt": make([]byte, 100<<10)}))
	r := start(t, s, func(c *Config) { c.Limits = small }).ready(t)
	if got := r.status("local"); got.Secrets != 201 || got.Fault != "" {
		t.Errorf("%+v", got)
	}
}

// A cluster may have all that its limits allow, however often it changes.
func TestChangesAreNotCountedTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, func(c *Config) { c.Limits = small }).ready(t)
	before := r.synced(t, "east", east)
	for round := range 4 {
		web := func(i, version int) *corev1.Secret {
			return secret("shop", fmt.Sprintf("web%d-%d", i, round), "", map[string][]byte{"tls.crt": fmt.Appendf(make([]byte, 40_000), "%d", version)})
		}
		last := Event{"east", Secret, "shop", fmt.Sprintf("web19-%d", round)}
		for i := range 20 {
			east.put(web(i, round))
		}
		until(t, "all have come", func() bool { return r.told(last) == 1 })
		east.put(web(19, -1))
		until(t, "one has changed", func() bool { return r.told(last) == 2 })
		for i := range 20 {
			east.remove(web(i, round))
		}
		until(t, "all are gone", func() bool { return r.told(last) == 3 })
	}
	if now, _ := r.Cluster("east"); now != before || r.status("east").Fault != "" {
		t.Errorf("%+v", r.status("east"))
	}
}

// Older servers, which list: a page that is too long is asked for in smaller ones.
func TestLongListIsReadInSmallerPages(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	pages := map[string]bool{}
	east.answer(hostile(older, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if kindOf(r) == "ConfigMap" {
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"}}`)
			return
		}
		var from, limit int
		_, _ = fmt.Sscan(q.Get("continue"), &from)
		_, _ = fmt.Sscan(q.Get("limit"), &limit)
		pages[q.Get("limit")] = true
		items, more := []string{}, ""
		for i := from; i < min(from+limit, 90); i++ {
			items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"n%d"},"data":{"x":"%s","cert":"QQ=="}}`, i, strings.Repeat("QUJD", 800)))
		}
		if from+limit < 90 {
			more = fmt.Sprint(from + limit)
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"SecretList","metadata":{"resourceVersion":"1","continue":%q},"items":[%s]}`, more, strings.Join(items, ","))
	}))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, func(c *Config) { c.Limits = small }).ready(t)
	r.synced(t, "east", east)
	if got := r.status("east"); got.Secrets != 90 || !pages["500"] || !pages["7"] || pages["3"] {
		t.Errorf("%+v in pages of %v", got, pages)
	}
}

// What JSON can become is seen before it is read; of other forms it is not.
func TestRemoteAnswersInJSONOnly(t *testing.T) {
	for _, kind := range []string{"application/vnd.kubernetes.protobuf", "application/yaml", "text/html", "application/json; ="} {
		s := servers(t, "local", "east")
		s[1].answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			endless(w, "k8s\x00")
		})
		s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
		r := start(t, s[0])
		want := fmt.Sprintf(`API server sent content type %q instead of "application/json"`, kind)
		until(t, kind+" is refused", func() bool { return strings.Contains(r.status("east").Fault, want) })
	}
}

// Room that nothing uses is not held, as nobody would count it.
func TestHeldDataHasNoSpareCapacity(t *testing.T) {
	s := servers(t, "local", "east")
	breaks := strings.Repeat(`\n`, 10_000)
	s[1].answer(hostile(older, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"%sList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"shop","name":"a"},"data":{"cert":"%s"}}]}`, kindOf(r), breaks)
	}))
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	got, err := start(t, s[0]).ready(t).synced(t, "east", s[1]).Secret("shop", "a")
	if err != nil || cap(got.Data["cert"]) > 100 {
		t.Errorf("%v; room for %d bytes", err, cap(got.Data["cert"]))
	}
}

func TestAnswerSizeCountsValues(t *testing.T) {
	for text, want := range map[string]int64{
		`"a,{[]}\"\\"`: 12,
		`{"a":[1,2]}`:  11 + 3*valueSize,
		`"\\\","`:      7,
		`{} [] {"`:     8 + 3*valueSize,
	} {
		whole := &body{ReadCloser: io.NopCloser(strings.NewReader(text)), limit: 1 << 20, structured: true}
		if _, err := io.ReadAll(whole); err != nil || whole.size != want {
			t.Errorf("%s is %d bytes, %v", text, whole.size, err)
		}
	}
	events := &body{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat(`{"a":"}"}`+"\n", 1000))), limit: 300, structured: true, each: true}
	if _, err := io.ReadAll(events); err != nil {
		t.Error(err)
	}
}
