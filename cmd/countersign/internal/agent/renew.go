package agent

import (
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// renewal answers POST /renew?secret=NAME of the agent's own user and root, over a Unix socket alone: the
// kernel says who asks. A provider of the same user is refused, as on every socket. Each request is
// logged, whatever comes of it.
func renewal(a *agent.Agent, refuse func(unixpeer.Peer) error, log *slog.Logger) http.HandlerFunc {
	policy := unixpeer.Policy{Refuse: refuse}
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("secret")
		peer, err := admitted(r, policy)
		if err != nil {
			log.Warn("refused to renew a secret", "secret", text.Clean(name), "uid", peer.UID, "pid", peer.PID, "error", err)
			operatorpage.Say(http.StatusForbidden, err.Error())(w, r)
			return
		}
		switch err = a.Renew(name); {
		case err == nil:
			log.Info("renewal of a secret requested", "secret", name, "uid", peer.UID, "pid", peer.PID)
			operatorpage.Say(http.StatusAccepted, "requested")(w, r)
		case errors.Is(err, secret.ErrUnknown):
			log.Warn("renewal of an unknown secret requested", "secret", text.Clean(name), "uid", peer.UID, "pid", peer.PID)
			operatorpage.Say(http.StatusNotFound, "no CA signs "+text.Quote(name)+": it is not a secret of this agent's configuration")(w, r)
		default:
			log.Warn("renewal of a secret requested in vain", "secret", text.Clean(name), "uid", peer.UID, "pid", peer.PID, "error", err)
			operatorpage.Say(http.StatusConflict, text.Clean(err.Error()))(w, r)
		}
	}
}

// admitted returns who asks, and an error unless that user may change something.
func admitted(r *http.Request, policy unixpeer.Policy) (unixpeer.Peer, error) {
	conn, ok := operatorpage.Conn(r.Context()).(*net.UnixConn)
	if !ok {
		return unixpeer.Peer{}, errors.New("secrets are renewed over a Unix socket alone: set status.address to unix:PATH")
	}
	peer, err := unixpeer.Of(conn)
	if err != nil {
		return peer, err
	}
	return peer, policy.Check(peer)
}
