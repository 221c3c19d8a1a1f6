package provider

import (
	"context"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestHighestCommonVersionIsNegotiated(t *testing.T) {
	d := Define("test", "1", func(context.Context, struct{}) (ca.Client, error) { return nil, nil })
	both := d.WithProtocols(wire.V1(), wire.Protocol{Version: 2})
	for _, c := range []struct {
		provider *Definition
		offered  string
		want     int // 0: none
	}{
		{both, "1,2", 2}, {both, "2", 2}, {both, "1", 1}, {both, "9,1,x", 1}, {both, "3", 0}, {both, "", 0},
		{d, "1,2", 1}, {d, "2", 0},
	} {
		p, err := c.provider.negotiate(c.offered)
		if p.Version != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("offered %q: version %d, %v; want %d", c.offered, p.Version, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "no common protocol version") {
			t.Error(err)
		}
	}
}
