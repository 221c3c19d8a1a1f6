package confine

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is the user that a provider runs as.
type account struct {
	uid, gid uint32
	home     string
}

// lookupUser finds a user by name or number; nil is the host's own, for "". It accepts a
// number without a user, with the same number for the group.
func lookupUser(name string) (*account, error) {
	if name == "" {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("user is %.256q, but this process is not root: start it as root or omit user", name)
	}
	found, err := user.Lookup(name)
	if err != nil {
		found, err = user.LookupId(name)
	}
	if _, notNumber := strconv.ParseUint(name, 10, 32); err != nil && notNumber == nil {
		found, err = &user.User{Uid: name, Gid: name, HomeDir: "/"}, nil // no such user yet
	}
	if err != nil {
		return nil, fmt.Errorf("unknown user %.256q: use the name or number of a user of this machine: %w", name, err)
	}
	return accountOf(found)
}

func accountOf(u *user.User) (*account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("invalid user number %.256q: %w", u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("invalid group number %.256q: %w", u.Gid, err)
	}
	if uid == 0 {
		return nil, errors.New("user is root: use an unprivileged user")
	}
	return &account{uint32(uid), uint32(gid), u.HomeDir}, nil
}

// Owns gives a file to the provider's user.
func (r *Restraint) Owns(path string) error {
	if r.user == nil {
		return nil
	}
	return os.Chown(path, int(r.user.uid), int(r.user.gid))
}
