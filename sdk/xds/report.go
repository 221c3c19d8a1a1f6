package xds

import (
	"context"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

// report reports the outcome of a request.
func (r *runner[C, Q, R]) report(st *step) {
	if st.acked {
		r.observe(Event[C]{Kind: Acked, TypeURL: st.url, Version: st.version, Left: st.left})
		if r.logs(slog.LevelDebug) {
			r.log(slog.LevelDebug, "acknowledged", "type", st.url, "version", st.version)
		}
	}
	if st.nacked {
		r.observe(Event[C]{Kind: Nacked, TypeURL: st.url, Version: st.version, Client: ClientText{Names: text.CleanAll(st.names), Message: st.reason}, Left: st.left})
		r.remember(st)
		r.logNACK(st)
	}
	if st.unserved != "" {
		r.log(slog.LevelDebug, "request for a type that is not served is ignored", "type", st.unserved)
	}
	r.tellRefused(st.typ, st.refused)
}

// logNACK logs at most ten NACKs a minute for a caller: a client that keeps requesting
// what it rejects could flood the log, on one stream or by reconnecting.
func (r *runner[C, Q, R]) logNACK(st *step) {
	if st.trying && st.atFault == nil {
		r.log(slog.LevelDebug, "client refused a part of what it refused before", "type", st.url, "names", nameList(st.names), "reason", st.reason)
		return
	}
	if unsaid, ok := r.lines().nacked.allow(time.Now(), 10, 1); ok {
		r.log(slog.LevelWarn, "client refused a version and keeps what it has", "type", st.url, "version", st.version,
			"names", nameList(st.names), "reason", st.reason, "suppressed", unsaid)
	}
}

// tellRefused reports refused names to the observer each time and to the log once a
// minute for a caller.
func (r *runner[C, Q, R]) tellRefused(typ int, names []string) {
	if len(names) == 0 {
		return
	}
	url := r.engine.urls[typ]
	names = text.CleanAll(names)
	r.observe(Event[C]{Kind: Refused, TypeURL: url, Client: ClientText{Names: names}})
	if unsaid, ok := r.lines().refused.allow(time.Now(), 1, len(names)); ok {
		r.log(slog.LevelWarn, "name is unknown or not for this caller; left out", "type", url, "name", names[0], "suppressed", unsaid)
	}
}

// reportCleared reports that something the client refused is gone.
func (r *runner[C, Q, R]) reportCleared(typ int) {
	r.mu.Lock()
	left, news := r.machine.cleared(typ)
	r.mu.Unlock()
	if news {
		r.observe(Event[C]{Kind: Cleared, TypeURL: r.engine.urls[typ], Left: left})
	}
}

// tellPushed reports a sent response.
func (r *runner[C, Q, R]) tellPushed(typ int, b batch) {
	names := make([]string, len(b.resources))
	for i, resource := range b.resources {
		names[i] = resource.Name
	}
	r.observe(Event[C]{Kind: Pushed, TypeURL: r.engine.urls[typ], Version: b.version, Names: names})
	if r.logs(slog.LevelDebug) {
		r.log(slog.LevelDebug, "pushed", "type", r.engine.urls[typ], "version", b.version, "names", nameList(names))
	}
}

func (r *runner[C, Q, R]) observe(e Event[C]) {
	e.Stream, e.Caller, e.Client.Node = r.id, r.caller, r.machine.nodeID()
	_, e.Delta = any(r.machine).(*delta)
	r.engine.cfg.Observe(e)
}

// logs reports whether lines of the level are logged. What happens with each push asks before it
// makes a line's values.
func (r *runner[C, Q, R]) logs(level slog.Level) bool {
	return r.engine.cfg.Log.Enabled(context.Background(), level)
}

func (r *runner[C, Q, R]) log(level slog.Level, message string, args ...any) {
	if r.logs(level) {
		args = append(args, "stream", r.id, "caller", r.caller, "node", r.machine.nodeID())
		r.engine.cfg.Log.Log(context.Background(), level, message, args...)
	}
}

// lines limits the log lines about the caller.
func (r *runner[C, Q, R]) lines() *callerLines { return r.engine.lines.of(r.callerName(), time.Now()) }

// callerName returns the caller as the log shows it. A client may have thousands of names a second
// refused, and each refusal needs it. The caller stays the same once [Config].Node has returned, which
// is before the first use.
func (r *runner[C, Q, R]) callerName() string {
	if known := r.name.Load(); known != nil {
		return *known
	}
	name := slog.AnyValue(r.caller).Resolve().String()
	r.name.Store(&name)
	return name
}

// remember notes the content because of which the client refused a response.
func (r *runner[C, Q, R]) remember(st *step) {
	if st.atFault != nil {
		r.engine.lines.remember(r.callerName(), hashOf(st.typ, st.atFault), time.Now())
	}
}

// refusedHashes returns the contents that clients of the caller refused before.
func (r *runner[C, Q, R]) refusedHashes() map[contentHash]struct{} {
	if !r.engine.lines.anyRefused.Load() {
		return nil
	}
	return r.engine.lines.refusedBy(r.callerName())
}
