package gateway

import (
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxFaults of a refused answer are told.
const maxFaults = 5

// take puts what is good of an answer on the shelf, and acknowledges it, or refuses it with
// what is wrong: one bad secret costs the others nothing.
func (s *session) take(answer *discoveryv3.DeltaDiscoveryResponse) error {
	if answer.GetTypeUrl() != typeURL {
		return ca.Errorf(ca.Internal, "it sent the type %.256q, which was not asked for", answer.GetTypeUrl())
	}
	s.heard()
	var faults []string
	for _, resource := range answer.GetResources() {
		if err := s.place(resource); err != nil {
			faults = append(faults, err.Error())
		}
	}
	for _, name := range answer.GetRemovedResources() {
		if s.remove(name) {
			s.cfg.Observe(Removed)
			s.cfg.Log.Warn("discovery service does not have a secret for this gateway", "name", name)
		}
	}
	return s.send(verdict(answer, faults))
}

// place puts one secret on the shelf; the error is for the service and says which and
// why. One that was not asked for is left unread.
func (s *session) place(resource *discoveryv3.Resource) error {
	name := resource.GetName()
	if _, asked := s.subscribed[name]; !asked {
		return nil
	}
	good, err := check(resource)
	news := false
	if err == nil {
		news, err = s.shelf.take(name, resource.GetVersion(), good)
	}
	switch {
	case err != nil:
		fault := text.Clean(err.Error())
		s.refuse(name, fault)
		s.cfg.Observe(Refused)
		s.cfg.Log.Error("rejected secret from discovery service, keeping the held one", "name", name, "error", fault)
		return fmt.Errorf("%s: %s", name, fault)
	case news:
		s.cfg.Observe(Taken)
		s.cfg.Log.Info("received secret from discovery service", "name", name, "not_after", good.notAfter)
	}
	return nil
}

func verdict(answer *discoveryv3.DeltaDiscoveryResponse, faults []string) *discoveryv3.DeltaDiscoveryRequest {
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: answer.GetNonce()}
	if len(faults) > 0 {
		req.ErrorDetail = &rpcstatus.Status{
			Code: int32(codes.InvalidArgument), Message: strings.Join(faults[:min(len(faults), maxFaults)], "; "),
		}
	}
	return req
}
