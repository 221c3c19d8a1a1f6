package workload_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/internal/workload"
)

// A service that answers without asking for the workload sends nothing, and ends no process by a panic.
func TestNothingIsSentWithoutAWorkload(t *testing.T) {
	resolve := func(context.Context, *workload.Call) error { return nil }
	over, err := workload.Serve(t.Context(), resolve, func(_ context.Context, c *workload.Call) error { return c.Check() })
	if over || status.Code(err) != codes.Internal {
		t.Errorf("over is %t, and the error %v", over, err)
	}
}
