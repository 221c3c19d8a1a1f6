package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // another screen, no cursor, no wrapped lines
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	rest  = "\x1b[K" // clears the rest of the line
	below = "\x1b[J"
)

// sizeInterval is how often the terminal's size is looked at, on systems without a signal too.
const sizeInterval = 200 * time.Millisecond

// screen is a terminal that shows a view.
type screen struct {
	view     *view
	tty      *os.File
	paint    painter
	interval time.Duration

	width, height int
	top           int // the first line shown
	most          int // the last that top may be
	paused        bool
}

// live shows the view until a key, or the end of ctx.
func live(ctx context.Context, keys, tty *os.File, sources []*source, interval time.Duration, filter cli.Filter) (err error) {
	before, err := term.MakeRaw(int(keys.Fd()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, term.Restore(int(keys.Fd()), before)) }()
	if _, err := tty.WriteString(enter); err != nil {
		return err
	}
	defer func() { _, _ = tty.WriteString(leave) }() // the terminal may have gone
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &screen{view: newView(sources), tty: tty, paint: cli.Paint(tty), interval: interval}
	s.view.filter = filter
	return s.run(ctx, readKeys(keys), askAll(ctx, sources, interval))
}

// numbered is an answer of the agent with that number.
type numbered struct {
	agent int
	answer
}

// askAll asks each agent again and again, an interval after its last answer.
func askAll(ctx context.Context, sources []*source, interval time.Duration) <-chan numbered {
	answers := make(chan numbered)
	for i, s := range sources {
		go func() {
			for ctx.Err() == nil {
				a := s.ask(ctx)
				select {
				case answers <- numbered{i, a}:
				case <-ctx.Done():
					return
				}
				select {
				case <-time.After(interval):
				case <-ctx.Done():
				}
			}
		}()
	}
	return answers
}

// readKeys returns what is typed. It is closed when the terminal has gone.
func readKeys(from *os.File) <-chan string {
	typed := make(chan string)
	go func() { // ends with the process: a terminal cannot be made to stop reading
		defer close(typed)
		buffer := make([]byte, 64)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			typed <- string(buffer[:n])
		}
	}()
	return typed
}

func (s *screen) run(ctx context.Context, typed <-chan string, answers <-chan numbered) error {
	sizes := time.NewTicker(sizeInterval)
	defer sizes.Stop()
	clock := time.NewTicker(time.Second) // what is left of a certificate
	defer clock.Stop()
	s.resized()
	for same := false; ; {
		if !same {
			if err := s.draw(); err != nil {
				return err
			}
		}
		same = false
		select {
		case <-ctx.Done():
			return nil
		case keys, ok := <-typed:
			if !ok || s.press(keys) {
				return nil
			}
		case a := <-answers:
			if !s.paused {
				s.view.take(a.agent, a.answer)
			}
		case <-clock.C:
		case <-sizes.C:
			same = !s.resized()
		}
	}
}

// resized notes the terminal's size, and reports whether it is another.
func (s *screen) resized() bool {
	width, height, err := term.GetSize(int(s.tty.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	changed := width != s.width || height != s.height
	s.width, s.height = width, height
	return changed
}

// moves are the keys that scroll, in lines or (±page) screens.
var moves = map[string]int{
	"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1, "\x1b[5~": -page, "b": -page, "\x1b[6~": page, " ": page,
	"\x1b[H": -end, "\x1b[1~": -end, "g": -end, "\x1b[F": end, "\x1b[4~": end, "G": end,
}

const (
	page = 1 << 20
	end  = 1 << 21
)

// press acts on keys, and reports whether to quit.
func (s *screen) press(keys string) (quit bool) {
	for keys != "" {
		key := firstKey(keys)
		keys = keys[len(key):]
		switch key {
		case "q", "\x03", "\x04":
			return true
		case "p":
			s.paused = !s.paused
		default:
			s.scroll(moves[key])
		}
	}
	return false
}

// firstKey returns the first key of what was typed: a byte, or a sequence up to its last letter.
func firstKey(keys string) string {
	if !strings.HasPrefix(keys, "\x1b[") {
		return keys[:1]
	}
	for i := 2; i < len(keys); i++ {
		if keys[i] >= '@' && keys[i] <= '~' {
			return keys[:i+1]
		}
	}
	return keys
}

func (s *screen) scroll(by int) {
	switch by {
	case page, -page:
		by = by / page * max(1, s.height-2)
	}
	s.top = max(0, min(s.top+by, s.most))
}

// draw writes the whole screen at once.
func (s *screen) draw() error {
	now := time.Now()
	lines := s.view.lines(s.width, now, s.paint)
	room := max(1, s.height-1)
	s.most = max(0, len(lines)-room)
	s.top = min(s.top, s.most)
	var out bytes.Buffer
	out.WriteString(home)
	for _, l := range lines[s.top:min(len(lines), s.top+room)] {
		out.WriteString(l + rest + "\r\n")
	}
	out.WriteString(below + fmt.Sprintf("\x1b[%d;1H", s.height) + cli.Cut(s.status(now), s.width) + rest)
	_, err := s.tty.Write(out.Bytes())
	return err
}

// status is the last line.
func (s *screen) status(now time.Time) string {
	state := fmt.Sprintf("every %s", s.interval)
	if s.paused {
		state = "paused"
	}
	where := ""
	if s.most > 0 {
		where = fmt.Sprintf("  line %d of %d", s.top+1, s.most+1)
	}
	return fmt.Sprintf("%s UTC  %s%s  q quit  ↑↓ scroll  p pause", now.UTC().Format(time.TimeOnly), state, where)
}
