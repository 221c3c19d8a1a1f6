package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Filter is the text of --filter, in any case. The zero value keeps every row.
type Filter string

// AddFlag adds --filter for rows with what it may be found in, such as "a name, a state".
func (f *Filter) AddFlag(cmd *cobra.Command, in string) {
	cmd.Flags().StringVar((*string)(f), "filter", "", "show rows alone that contain this text: "+in)
}

// Check rejects a filter of output that has no rows.
func (f Filter) Check(output string) error {
	if f != "" && output == "json" {
		return errors.New("--filter is for tables: remove it, or -o json")
	}
	return nil
}

// Keeps reports whether one of the cells of a row contains the text.
func (f Filter) Keeps(cells ...string) bool {
	text := strings.ToLower(string(f))
	return slices.ContainsFunc(cells, func(cell string) bool { return strings.Contains(strings.ToLower(cell), text) })
}
