package reference

import "strconv"

// minText is the length from which a secret is recognized in other text.
const minText = 4

// Texts returns the secret texts in settings, for those who remove them from other text. Texts of
// less than 4 bytes are left out. Nil paths mean no secrets.
func (p Paths) Texts(settings map[string]any) []string { return textsAt(settings, p.Root()) }

func textsAt(value any, at Place) (found []string) {
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			found = append(found, textsAt(below, at.Below(name))...)
		}
	case []any:
		for i, below := range value {
			found = append(found, textsAt(below, at.Below(strconv.Itoa(i)))...)
		}
	case string:
		if at.Secret() && len(value) >= minText {
			found = append(found, value)
		}
	}
	return found
}
