package acmeca

import (
	"math/big"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func bigInt(n int64) *big.Int { return big.NewInt(n) }
