package pki

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func inUTF16(text string, low, high int) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		pair := []byte{0, 0}
		pair[low], pair[high] = byte(unit), byte(unit>>8)
		out = append(out, pair...)
	}
	return out
}

// two is two blocks with a text that pem.Decode reads.
func two() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "A", Bytes: []byte("one")})) + string(pem.EncodeToMemory(&pem.Block{Type: "A", Bytes: []byte("two")}))
}

func TestBlocksTakeWhatEditorsLeave(t *testing.T) {
	good := two()
	lines := func(change func(string) string) []byte {
		all := strings.Split(good, "\n")
		for i := range all {
			all[i] = change(all[i])
		}
		return []byte(strings.Join(all, "\n"))
	}
	for name, text := range map[string][]byte{
		"plain":                 {},
		"byte order marks":      []byte("\ufeff" + strings.ReplaceAll(good, "-----BEGIN", "\ufeff-----BEGIN")),
		"UTF-16, low first":     inUTF16(good, 0, 1),
		"UTF-16, high first":    inUTF16(good, 1, 0),
		"CRLF":                  []byte(strings.ReplaceAll(good, "\n", "\r\n")),
		"CR":                    []byte(strings.ReplaceAll(good, "\n", "\r")),
		"no newline at the end": []byte(strings.TrimSpace(good)),
		"glued":                 []byte(strings.ReplaceAll(good, "-----\n-----BEGIN", "----------BEGIN")),
		"indented":              lines(func(line string) string { return "  " + line }),
		"trailing white space":  lines(func(line string) string { return line + " \t\u00a0" }),
		"Bag Attributes":        []byte("Bag Attributes\n    friendlyName: root\nKey Attributes: <No Attributes>\nsubject=CN = x\n" + good + "a word\n"),
		"comments":              []byte("# -----BEGIN A-----\n# b25l\n# -----END A-----\n; -----BEGIN A-----\n-------- BEGIN of the roots --------\n" + good),
		"six dashes":            []byte(strings.ReplaceAll(good, "-----BEGIN", "------BEGIN")),
		"a word before":         []byte(strings.ReplaceAll(good, "-----BEGIN", "ca: -----BEGIN")),
	} {
		if len(text) == 0 {
			text = []byte(good)
		}
		var got []string
		for block, err := range Blocks(text) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got = append(got, block.Type, string(block.Bytes))
		}
		if strings.Join(got, " ") != "A one A two" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestSpoiledBlockIsNamed(t *testing.T) {
	good := two()
	for name, test := range map[string]struct{ from, to, want string }{
		"a letter":           {"b25l", "b2%l", `PEM block 1 "A" at line 1 is malformed: its base64`},
		"no END":             {"b25l\n-----END A-----\n", "b25l\n", `PEM block 1 "A" at line 1 is malformed: its END line is missing`},
		"no last END":        {"dHdv\n-----END A-----\n", "dHdv\n", `PEM block 2 "A" at line 4 is malformed: its END line is missing`},
		"END of another":     {"b25l\n-----END A-----", "b25l\n-----END B-----", `PEM block 1 "A" at line 1 is malformed: its BEGIN and END lines differ`},
		"no BEGIN":           {"-----BEGIN A-----\nb25l", "b25l", `PEM block 1 "A" at line 2 is malformed: its BEGIN line is missing`},
		"four dashes":        {"-----BEGIN A-----\nb25l", "----BEGIN A-----\nb25l", `PEM block 1 "A" at line 1 is malformed`},
		"typographic dashes": {"-----BEGIN A-----\nb25l", "—–BEGIN A—–\nb25l", `PEM block 1 "A" at line 1 is malformed`},
		"in one line":        {"-----BEGIN A-----\nb25l\n-----END A-----", "-----BEGIN A----- b25l -----END A-----", `PEM block 1 at line 1 is malformed: its END line is missing`},
	} {
		var faults, blocks int
		for block, err := range Blocks([]byte(strings.Replace(good, test.from, test.to, 1))) {
			switch {
			case block != nil:
				blocks++
			case !strings.HasPrefix(err.Error(), test.want):
				t.Errorf("%s: got %q, want %q", name, err, test.want)
			default:
				faults++
			}
		}
		if faults != 1 || blocks != 1 {
			t.Errorf("%s: %d blocks and %d faults, want one of each", name, blocks, faults)
		}
	}
}

// Blocks copies a text only where pem.Decode does not take it unchanged, as with a space at the end of a line.
func TestBlocksAreTheSameWithoutACopy(t *testing.T) {
	read := func(text string) (all []string) {
		for block, err := range Blocks([]byte(text)) {
			if err != nil {
				all = append(all, err.Error())
				continue
			}
			all = append(all, block.Type+string(block.Bytes))
		}
		return all
	}
	good := two()
	for _, text := range []string{
		good, strings.TrimSpace(good), " " + strings.TrimSpace(good), strings.ReplaceAll(good, "-----\n-----BEGIN", "----------BEGIN"),
		"\n\na word\n" + good, strings.Replace(good, "\n", "\n\n", 1), strings.Replace(good, "\n", "\n# x\n", 1), strings.Replace(good, "END A", "END B", 1),
		strings.Replace(good, "\n", "\n ", 1), good[:len(good)-20], strings.Replace(good, "-----END A-----\n", "", 1),
	} {
		got, want := read(text), read(strings.ReplaceAll(text, "\n", " \n"))
		if !slices.Equal(got, want) {
			t.Errorf("%q:\n%q, with spaces at the ends of lines:\n%q", text, got, want)
		}
	}
}

func TestKeyInBEGINLineIsInNoError(t *testing.T) {
	for _, text := range []string{"-----BEGIN PRIVATE KEY----- MIIEsecret -----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY---- MIIESECRET\n-----END PRIVATE KEY-----", "-----BEGIN MIIESECRETMIIESECRETMIIESECRET=\n"} {
		for _, err := range Blocks([]byte(text)) {
			if err == nil || strings.Contains(strings.ToLower(err.Error()), "secret") {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

func TestNoCertificateVanishes(t *testing.T) {
	if certs, err := ParseCertificates(read(t, "glued.pem")); err != nil || len(certs) != 3 {
		t.Errorf("joined without a newline: %d certificates, %v; want 3", len(certs), err)
	}
	spoiled := read(t, "bad-letter.pem")
	if certs, err := ParseCertificates(spoiled); err == nil || !strings.Contains(err.Error(), `PEM block 1 "CERTIFICATE" at line 1 `) {
		t.Errorf("a wrong letter: %d certificates, %v; want an error that names the first block", len(certs), err)
	}
	usable, unusable, err := UsableCertificates(spoiled)
	if err != nil || len(usable) != 2 || len(unusable) != 1 {
		t.Errorf("a wrong letter: %d usable, %v left out, %v", len(usable), unusable, err)
	}
}

func TestTrustedCertificateIsRefusedWithRemedy(t *testing.T) {
	text := bytes.ReplaceAll(read(t, "sha1-root.pem"), []byte(" CERTIFICATE"), []byte(" TRUSTED CERTIFICATE"))
	if _, err := ParseCertificates(text); err == nil || !strings.Contains(err.Error(), "convert it with openssl x509") {
		t.Error(err)
	}
	old := bytes.ReplaceAll(read(t, "sha1-root.pem"), []byte(" CERTIFICATE"), []byte(" X509 CERTIFICATE"))
	if _, err := ParseCertificates(old); err != nil {
		t.Error("OpenSSL's old name: ", err)
	}
}

func TestRefusedCertificateIsNamedWithTrueReason(t *testing.T) {
	for name, want := range map[string]string{
		"negative-serial.pem": "is not accepted by Go's crypto/x509: negative serial number (subject ",
		"brainpool.pem":       "has a key on the curve brainpoolP256r1, which Go does not support; use P-256 or P-384 (subject ",
		"explicit-curve.pem":  "has a key with explicit curve parameters, which Go does not support; use a named curve, P-256 or P-384 (subject ",
	} {
		_, err := ParseCertificates(read(t, name))
		if err == nil || !strings.Contains(err.Error(), "PEM block 1 "+want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func FuzzBlocks(f *testing.F) {
	for _, name := range []string{"glued.pem", "bad-letter.pem"} {
		f.Add(read(f, name))
	}
	f.Add(inUTF16(two(), 0, 1))
	f.Fuzz(func(t *testing.T, text []byte) {
		// What pem.Decode finds is found, too.
		var found [][]byte
		for block := range Blocks(text) {
			if block != nil {
				found = append(found, block.Bytes)
			}
		}
		if len(text) > 1 && (text[0] >= 0xfe && text[1] >= 0xfe) || bytes.ContainsAny(text, "\r#;\ufeff") {
			return
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if len(found) == 0 {
				t.Fatalf("lost %q", block.Type)
			}
			found = found[1:]
		}
	})
}

func TestVersion1ListIsRefusedWithRemedy(t *testing.T) {
	_, _, err := ParseCRLs(read(t, "v1.crl"))
	if err == nil || !strings.Contains(err.Error(), "PEM block 1 is of version 1, which has no extensions: set crl_extensions") {
		t.Error(err)
	}
}

func TestRefusedKeyIsNamedWithTrueReason(t *testing.T) {
	curve, err := asn1.Marshal(asn1.ObjectIdentifier{1, 3, 132, 0, 10})
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(algorithm asn1.ObjectIdentifier, parameters []byte) []byte {
		der, err := asn1.Marshal(struct {
			Version   int
			Algorithm pkix.AlgorithmIdentifier
			Key       []byte
		}{0, pkix.AlgorithmIdentifier{Algorithm: algorithm, Parameters: asn1.RawValue{FullBytes: parameters}}, []byte("sesame")})
		if err != nil {
			t.Fatal(err)
		}
		return block("PRIVATE KEY", der)
	}
	sec1, err := asn1.Marshal(struct {
		Version int
		Key     []byte
		Curve   asn1.ObjectIdentifier `asn1:"explicit,tag:0"`
	}{1, []byte("sesame"), asn1.ObjectIdentifier{1, 3, 36, 3, 3, 2, 8, 1, 1, 7}})
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string][]byte{
		"has a key on the curve secp256k1, which Go does not support":       pkcs8(oidEC, curve),
		"has a key with explicit curve parameters":                          pkcs8(oidEC, []byte{0x30, 0}),
		"has an Ed448 key, which Go does not support":                       pkcs8(asn1.ObjectIdentifier{1, 3, 101, 113}, nil),
		"has a key on the curve brainpoolP256r1, which Go does not support": block("EC PRIVATE KEY", sec1),
		"the key is in OpenSSH's own format; convert it with ssh-keygen":    block("OPENSSH PRIVATE KEY", []byte("sesame")),
		"the key is encrypted": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("sesame")}),
	} {
		if _, err := ParseKey(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
