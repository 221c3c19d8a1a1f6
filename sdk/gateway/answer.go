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

// maxFaults limits the faults reported for a rejected answer.
const maxFaults = 5

// take stores the good part of an answer and acknowledges it, or rejects it with its
// faults: one bad secret does not affect the others.
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

// place stores one secret; the error, meant for the service, names the secret and the
// reason. A secret that was not requested is not read.
func (s *session) place(resource *discoveryv3.Resource) error {
	name := resource.GetName()
	if _, asked := s.subscribed[name]; !asked {
		return nil
	}
	good, err := check(resource)
	news := false
	if err == nil {
		news, err = s.store.take(name, resource.GetVersion(), good)
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
