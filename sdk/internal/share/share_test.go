package share

import "testing"

func TestUsersThatKeepTheirPlacesLeaveSomeToOthers(t *testing.T) {
	p := Places{Own: 2, Common: 64}
	var has [100]int
	for user := range has {
		for has[user] < 16 && p.Take(has[user]) {
			has[user]++
		}
	}
	total := 0
	for _, n := range has {
		total += n
	}
	if has[0] != 16 || has[3] < 8 || has[99] != 2 || total > 100*2+64 {
		t.Errorf("the first user has %d, the fourth %d, the last %d, all %d", has[0], has[3], has[99], total)
	}
	for user, n := range has {
		for ; n > 0; n-- {
			p.Give(n)
		}
		has[user] = 0
	}
	if p.taken != 0 {
		t.Errorf("%d places are taken after all were given back", p.taken)
	}
}
