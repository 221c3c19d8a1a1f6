package endpoint

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestRedirectsStayOnSameServer(t *testing.T) {
	const get, post = http.MethodGet, http.MethodPost
	for name, test := range map[string]struct {
		redirects Redirects
		method    string
		code      int
		target    string // HERE is the server, HOST its host
		says      string // the body or the error
	}{
		"within":                            {FollowGET, get, 302, "/here", "GET /here yes "},
		"the same server in full":           {FollowGET, get, 301, "HERE/here", "GET /here yes "},
		"another server":                    {FollowGET, get, 302, "http://192.0.2.1/sesame", "to another server"},
		"another port":                      {FollowGET, get, 302, "http://127.0.0.1:1/sesame", "to another server"},
		"another scheme":                    {FollowGET, get, 302, "https://HOST/sesame", "another scheme"},
		"in circles":                        {FollowGET, get, 302, "/away", "more than 3 times"},
		"a POST":                            {FollowGET, post, 307, "/here", "which a POST does not follow"},
		"a POST that keeps its body":        {FollowSame, post, 307, "/here", "POST /here yes body"},
		"and by 308":                        {FollowSame, post, 308, "/here", "POST /here yes body"},
		"a POST that loses its body":        {FollowSame, post, 302, "/here", "drops the request"},
		"a POST in circles":                 {FollowSame, post, 307, "/away", "more than 3 times"},
		"a POST to another server":          {FollowSame, post, 307, "http://192.0.2.1/sesame", "to another server"},
		"a GET, with others that keep":      {FollowSame, get, 302, "/here", "GET /here yes "},
		"none is followed":                  {ReplyRedirects, get, 302, "/here", "302"},
		"nor a POST's":                      {ReplyRedirects, post, 307, "/here", "307"},
		"nor one whose location is nothing": {ReplyRedirects, get, 302, "%zz-sesame", "302"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/away" {
				_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Test")+" "+string(body))
				return
			}
			w.Header().Set("Location", strings.NewReplacer("HERE", "http://"+r.Host, "HOST", r.Host).Replace(test.target))
			w.WriteHeader(test.code)
			_, _ = io.WriteString(w, strconv.Itoa(test.code))
		}))
		client := New(Options{Redirects: test.redirects})
		var body []byte
		if test.method == post {
			body = []byte("body")
		}
		reply, err := client.Do(t.Context(), test.method, server.URL+"/away", http.Header{"X-Test": {"yes"}}, body)
		server.Close()
		if err == nil && string(reply.Body) != test.says || err != nil && (!strings.Contains(err.Error(), test.says) || !errors.Is(err, ErrRedirect) || strings.Contains(err.Error(), "sesame")) {
			t.Errorf("%s: %q, %v; want %q", name, reply.Body, err, test.says)
		}
	}
}

func TestFourthRedirectIsNotFollowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != r.Header.Get("X-Last") {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}
	}))
	defer server.Close()
	client := New(Options{})
	if reply, err := client.Do(t.Context(), http.MethodGet, server.URL, http.Header{"X-Last": {"/xxx"}}, nil); err != nil || reply.Status != http.StatusOK {
		t.Errorf("%d, %v", reply.Status, err)
	}
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, http.Header{"X-Last": {"/xxxx"}}, nil); !errors.Is(err, ErrRedirect) {
		t.Errorf("four: %v", err)
	}
}
