// Package share (for Countersign's own programs) divides the quota of a certificate authority
// among several engines that issue at once: [Keeper.Share] is the part of one of them. Make a
// Keeper with [New], give its Share to [ra.Authority], and run it with [Keeper.Run].
//
// The members see each other in one small record, which a [Store] keeps and replaces only as it
// was read. Each member reads it every sixth of [Config.Duration], and writes what it wants, and what
// it has; half as often while that stays the same. From what all want, each works out its own part. A
// member that has more shrinks first, and its next write shows that; one that has less takes what is
// free then, and uses it when its write has succeeded. So the sum in the record never exceeds the
// whole, and no member ever uses more than its part of the record.
//
//	beat:  read ──▶ forget the dead ──▶ fair shares ──▶ use less at once ──▶ write ──▶ use more
//
// # Time
//
// A share is good for four fifths of the Duration after its write was sent, by the monotonic
// clock and by the wall clock, whichever went further: a suspended machine stops the former. It
// is looked at before each call, so a process that was stopped finds its share gone before it
// does anything. Others take it after a whole Duration in which they saw no sign of the member,
// counted by their own clocks from their own reading. Clocks may differ by any amount, and run
// at rates that differ by a fifth.
//
// # A store that is away
//
// Nobody can tell then what the others do. A member keeps its share to its end, and after that
// a floor, a hundredth of the whole, for 48 minutes, and nothing later. Three floors at most are
// given out, and they stay reserved for an hour although the member is gone.
//
// # A record that is lost
//
// Whoever finds none makes one, and nobody takes anything from it for a Duration, as others may
// still use shares of the record before: they enter themselves with what they have. So the
// first members of all wait that long. For an hour no new floors are given out, and three are
// kept free.
//
// # A record of no use
//
// A member that finds one which no program wrote writes nothing over it for a Duration, and then
// treats it as lost. One of a newer version is never replaced: each member keeps the share that it
// has while it finds such a record, and one that starts then has none. So a program writes a new
// version only when all living members say that they read it.
//
// A member that ends takes itself out of the record. It writes nothing if the record does not name
// it.
//
// # What remains
//
// A call whose turn came goes out, however late: between the look at a share and the CA's own
// count there is no lock. And a machine whose wall clock is set back while it is suspended does
// not know for how long it was.
//
// [ra.Authority]: https://pkg.go.dev/github.com/countersign-dev/countersign/ra#Authority
package share
