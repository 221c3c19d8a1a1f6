package chain

// element is one of BER (X.690, section 8). Authorities that write PKCS #7 as a stream open an
// element before they know its length, and end it with two zeros. encoding/asn1 reads DER alone.
type element struct {
	tag  byte   // the identifier octet
	body []byte // without the end of an open element
	full []byte
}

// The identifier octets of what is looked for.
const (
	tagInteger  = 0x02
	tagOID      = 0x06
	tagSequence = 0x30
	tagSet      = 0x31
	tagZero     = 0xa0 // [0], constructed
	constructed = 0x20
	manyOctets  = 0x1f // the tag does not fit; CMS has none
)

// maxOpen bounds how deep open elements are nested.
const maxOpen = 16

// next reads the first element, and returns what follows it. An element with a length is not looked
// into; an open one is, to find its end.
func next(ber []byte, depth int) (e element, rest []byte, ok bool) {
	if len(ber) < 2 || ber[0]&manyOctets == manyOctets {
		return e, nil, false
	}
	if ber[1] == 0x80 {
		return nextOpen(ber, depth)
	}
	size, body, ok := length(ber[1:])
	if !ok || size > len(body) {
		return e, nil, false
	}
	rest = body[size:]
	return element{ber[0], body[:size], ber[:len(ber)-len(rest)]}, rest, true
}

// length reads the length of an element, which BER may write with more octets than needed.
func length(ber []byte) (size int, body []byte, ok bool) {
	size, body = int(ber[0]), ber[1:]
	if size < 0x80 {
		return size, body, true
	}
	octets := size & 0x7f
	if octets > len(body) {
		return 0, nil, false
	}
	size = 0
	for _, b := range body[:octets] {
		if size = size<<8 | int(b); size > maxBag {
			return 0, nil, false
		}
	}
	return size, body[octets:], true
}

func nextOpen(ber []byte, depth int) (e element, rest []byte, ok bool) {
	if depth == maxOpen || ber[0]&constructed == 0 {
		return e, nil, false
	}
	rest = ber[2:]
	for len(rest) >= 2 {
		if rest[0] == 0 && rest[1] == 0 {
			end := len(ber) - len(rest)
			return element{ber[0], ber[2:end], ber[:end+2]}, rest[2:], true
		}
		if _, rest, ok = next(rest, depth+1); !ok {
			break
		}
	}
	return e, nil, false
}

// inside returns the elements in the body of an element with a tag, so many at most.
func (e element) inside(tag byte, most int) (all []element, ok bool) {
	ok = e.tag == tag
	for rest := e.body; ok && len(rest) > 0; {
		var one element
		if one, rest, ok = next(rest, 0); ok {
			all = append(all, one)
		}
		ok = ok && len(all) <= most
	}
	return all, ok
}
