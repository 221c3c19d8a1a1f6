package kubetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// callOf reads a request.
func callOf(r *http.Request) *Call {
	c := &Call{Context: r.Context(), Method: r.Method, URL: r.URL.String(), Header: r.Header, query: r.URL.Query()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 1:
		c.group, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 2:
		c.group, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		c.Namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "", "")
	c.Resource, c.Name, c.Subresource = parts[0], parts[1], parts[2]
	c.Verb = map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete", http.MethodPatch: "patch",
	}[r.Method]
	switch {
	case c.Asks("watch") != "":
		c.Verb = "watch"
	case c.Verb == "get" && c.Name == "":
		c.Verb = "list"
	}
	return c
}

// answer is what is sent for a request: a value or a stream.
type answer struct {
	code   int
	value  any
	stream func(ctx context.Context, send func(any) error)
}

// admit records a request, and returns why it is refused.
func (f *Fake) admit(r *http.Request) (*Call, error) {
	c := callOf(r)
	f.mu.Lock()
	f.calls = append(f.calls, *c)
	before, token, fault := f.Before, f.Token, c.meets(f.faults)
	f.mu.Unlock()
	if c.Verb == "create" || c.Verb == "update" || c.Verb == "patch" && r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
		if err := json.NewDecoder(r.Body).Decode(&c.Object); err != nil {
			return c, apierrors.NewBadRequest(err.Error())
		}
		c.Name, _ = c.Object.meta()["name"].(string)
	}
	if c.Verb == "delete" && r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&c.Object) // DeleteOptions, which may be missing
	}
	if fault != nil {
		return c, fault
	}
	if before != nil {
		if err := before(c); err != nil {
			return c, err
		}
	}
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		return c, apierrors.NewUnauthorized("who are you")
	}
	return c, nil
}

func (f *Fake) answer(c *Call) (answer, error) {
	switch {
	case c.Reply != nil:
		return answer{code: http.StatusOK, value: c.Reply}, nil
	case c.Verb == "watch":
		return f.watch(c), nil
	}
	if reply := f.Answers[c.Resource]; c.Verb == "create" && reply != nil {
		return answer{code: http.StatusCreated, value: reply(c.Object)}, nil
	}
	code, value, err := f.do(c)
	if err != nil {
		return refusal(err)
	}
	f.mu.Lock()
	after := f.After
	f.mu.Unlock()
	if after != nil {
		after(c)
	}
	return answer{code: code, value: value}, nil
}

func refusal(err error) (answer, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return answer{}, err
	}
	told := status.Status()
	told.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return answer{code: int(told.Code), value: told}, nil
}

// RoundTrip implements [http.RoundTripper], without sockets.
func (f *Fake) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := f.admit(r)
	var a answer
	if err == nil {
		a, err = f.answer(c)
	} else {
		a, err = refusal(err)
	}
	if err = cmp.Or(err, r.Context().Err()); err != nil {
		return nil, err
	}
	reply := &http.Response{StatusCode: a.code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if a.stream == nil {
		text, err := json.Marshal(a.value)
		reply.Body = io.NopCloser(bytes.NewReader(text))
		return reply, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	in, out := io.Pipe()
	go func() {
		a.stream(ctx, json.NewEncoder(out).Encode)
		_ = out.CloseWithError(ctx.Err())
	}()
	reply.Body = &body{in, cancel}
	return reply, nil
}

// body ends its stream when it is closed.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *body) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// ServeHTTP implements [http.Handler].
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := f.admit(r)
	f.mu.Lock()
	instead := f.Instead
	f.mu.Unlock()
	var a answer
	switch {
	case err != nil:
		a, err = refusal(err)
	case instead != nil:
		instead(w, r)
		return
	default:
		a, err = f.answer(c)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	if a.stream == nil {
		_ = json.NewEncoder(w).Encode(a.value)
		return
	}
	out := http.NewResponseController(w)
	_ = out.Flush()
	encoder := json.NewEncoder(w)
	a.stream(r.Context(), func(event any) error {
		return errors.Join(encoder.Encode(event), out.Flush())
	})
}

// watch streams what changes after a version, or after all that is there now.
func (f *Fake) watch(c *Call) answer {
	f.mu.Lock()
	seen, _ := strconv.Atoi(c.Asks("resourceVersion"))
	var events []any
	if c.Asks("sendInitialEvents") == "true" {
		seen = len(f.history)
		for _, o := range f.selected(c) {
			events = append(events, event("ADDED", o))
		}
		events = append(events, event("BOOKMARK", Object{
			"kind": kindOf(c), "apiVersion": c.group.String(), "metadata": Object{
				"resourceVersion": strconv.Itoa(seen), "annotations": Object{metav1.InitialEventsAnnotationKey: "true"},
			},
		}))
	}
	f.watching++
	cut := f.cut
	f.mu.Unlock()
	return answer{code: http.StatusOK, stream: func(ctx context.Context, send func(any) error) {
		defer f.unwatch()
		for {
			for _, e := range events {
				if send(e) != nil {
					return
				}
			}
			var changed chan struct{}
			if events, seen, changed = f.news(c, seen); len(events) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-cut:
				return
			case <-ctx.Done():
				return
			}
		}
	}}
}

func event(kind string, object any) any { return Object{"type": kind, "object": object} }

// news are the changes after a version, and what the next one closes.
func (f *Fake) news(c *Call, seen int) (events []any, now int, changed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.history[min(seen, len(f.history)):] {
		if f.selects(c, n.key, n.object) {
			events = append(events, event(n.kind, n.text))
		}
	}
	return events, len(f.history), f.changed
}

func (f *Fake) unwatch() {
	f.mu.Lock()
	f.watching--
	f.mu.Unlock()
	f.end()
}

func (f *Fake) end() {
	f.mu.Lock()
	ended := f.Ended
	f.mu.Unlock()
	if ended != nil {
		ended()
	}
}
