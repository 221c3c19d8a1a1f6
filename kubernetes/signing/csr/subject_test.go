package csr

import "testing"

func TestServiceAccountsOfANamespaceShareItsTurns(t *testing.T) {
	for user, want := range map[string]string{
		"system:serviceaccount:shop:web":   "system:serviceaccounts:shop",
		"system:serviceaccount:shop:admin": "system:serviceaccounts:shop",
		"system:serviceaccount:bank:web":   "system:serviceaccounts:bank",
		"system:node:node-1":               "system:node:node-1",
		"shop":                             "shop",
	} {
		r := &request{}
		r.Spec.Username = user
		if got := owner(r); got != want {
			t.Errorf("%q shares with %q, want %q", user, got, want)
		}
	}
}
