package wire

import (
	"context"
	"net/url"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxLeaf bounds a certificate that is asked about, in bytes of PEM.
const maxLeaf = 128 << 10

// RenewalInfo implements [ca.RenewalAdvisor].
func (r *Remote) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	if err := checkLeaf(leaf); err != nil {
		return ca.RenewalInfo{}, err
	}
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.renewals.GetRenewalInfo(ctx, &providerv1.GetRenewalInfoRequest{Certificate: leaf})
	if err != nil {
		return ca.RenewalInfo{}, failed(ctx, err, "")
	}
	return renewalFromProto(out)
}

func (s *server) GetRenewalInfo(ctx context.Context, in *providerv1.GetRenewalInfoRequest) (*providerv1.GetRenewalInfoResponse, error) {
	if err := checkLeaf(in.GetCertificate()); err != nil {
		return nil, ToStatus(err)
	}
	info, err := s.p.RenewalInfo(ctx, in.GetCertificate())
	if err != nil {
		return nil, ToStatus(err)
	}
	return renewalToProto(info), nil
}

func checkLeaf(leaf []byte) error {
	switch {
	case len(leaf) > maxLeaf:
		return ca.Errorf(ca.Invalid, "the certificate has %d bytes, %d are allowed", len(leaf), maxLeaf)
	case !isOnePEM(leaf, "CERTIFICATE"):
		return ca.Errorf(ca.Invalid, "the certificate is not one PEM block of type CERTIFICATE")
	}
	return nil
}

func renewalToProto(info ca.RenewalInfo) *providerv1.GetRenewalInfoResponse {
	out := &providerv1.GetRenewalInfoResponse{ExplanationUrl: info.Explanation}
	if !info.Start.IsZero() {
		out.WindowStart = timestamppb.New(info.Start)
	}
	if !info.End.IsZero() {
		out.WindowEnd = timestamppb.New(info.End)
	}
	if info.RetryAfter > 0 {
		out.RetryAfter = durationpb.New(info.RetryAfter)
	}
	return out
}

func renewalFromProto(in *providerv1.GetRenewalInfoResponse) (ca.RenewalInfo, error) {
	start, end := in.GetWindowStart(), in.GetWindowEnd()
	if !start.IsValid() || !end.IsValid() || !end.AsTime().After(start.AsTime()) {
		return ca.RenewalInfo{}, ca.Errorf(ca.Internal, "the provider's renewal window is not two times, the second after the first")
	}
	if !isWebURL(in.GetExplanationUrl()) {
		return ca.RenewalInfo{}, ca.Errorf(ca.Internal, "the provider explains its renewal window by %q, which is not an http URL of at most %d bytes", CleanText(in.GetExplanationUrl(), ""), maxWord)
	}
	retry, err := retryAfter(in.GetRetryAfter())
	return ca.RenewalInfo{Start: start.AsTime(), End: end.AsTime(), Explanation: in.GetExplanationUrl(), RetryAfter: retry}, err
}

func retryAfter(in *durationpb.Duration) (time.Duration, error) {
	if in == nil {
		return 0, nil
	}
	if !in.IsValid() || in.AsDuration() < 0 {
		return 0, ca.Errorf(ca.Internal, "the provider's retry_after is not a valid duration")
	}
	return min(in.AsDuration(), maxRetryAfter), nil
}

// isWebURL reports whether text is empty or may be shown as a link.
func isWebURL(text string) bool {
	if text == "" {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		len(text) <= maxWord && !strings.ContainsFunc(text, unicode.IsControl)
}
