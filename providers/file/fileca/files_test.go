package fileca

import (
	"errors"
	"io/fs"
	"testing"
)

func TestSetIsReadOnlyWhenStable(t *testing.T) {
	set := func(cert, key string) *files { return &files{cert: []byte(cert), key: []byte(key)} }
	old, mixed, fresh := set("old", "old"), set("old", "new"), set("new", "new")
	for name, test := range map[string]struct {
		reads []*files // nil: the read fails
		want  *files
		fails bool
	}{
		"still":               {[]*files{old, old}, old, false},
		"swapped-while-read":  {[]*files{mixed, fresh, fresh}, fresh, false},
		"swapped-in-between":  {[]*files{old, fresh, fresh}, fresh, false},
		"a-byte-moved-over":   {[]*files{set("ab", "c"), set("a", "bc"), set("a", "bc")}, set("a", "bc"), false},
		"gone-in-between":     {[]*files{old, nil}, nil, true},
		"never-there":         {[]*files{nil}, nil, true},
		"never-holding-still": {[]*files{old, fresh, old, fresh, old, fresh}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := settle(func() (*files, error) {
				next := test.reads[0]
				test.reads = test.reads[1:]
				if next == nil {
					return nil, fs.ErrNotExist
				}
				return next, nil
			})
			if errors.Is(err, fs.ErrNotExist) != test.fails || (got == nil) != (test.want == nil) || got != nil && got.sum() != test.want.sum() {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
