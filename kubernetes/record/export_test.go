package record

// The times of [Recent].
const (
	ReadAgain = recent
	AskAgain  = again
)
