package state

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// memDisk is a folder in memory. At its step number fails, which counts what changes it, it returns
// err once, or for ever if dead is set, as after the end of the process.
type memDisk struct {
	mu      sync.Mutex
	files   map[string]*memFile
	durable map[string]*memFile // names
	random  *rand.Rand
	step    int
	fails   int // zero: never
	err     error
	dead    bool
	syncs   int
	onSync  func()
	// onCreate is called without the lock.
	onCreate func()
}

// memFile has its content, and what of it would be there after a power failure.
type memFile struct {
	disk            *memDisk
	content, synced []byte
}

var errDead = errors.New("the process has ended")

func newMemDisk(seed uint64) *memDisk {
	return &memDisk{files: map[string]*memFile{}, durable: map[string]*memFile{}, random: rand.New(rand.NewPCG(seed, 1))}
}

// fault counts a step and returns its error.
func (d *memDisk) fault() error {
	d.step++
	switch {
	case d.fails == 0 || d.step < d.fails:
		return nil
	case d.dead:
		return errDead
	case d.step == d.fails:
		return d.err
	}
	return nil
}

func (d *memDisk) open(name string) (diskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return f, nil
}

func (d *memDisk) create(name string) (diskFile, error) {
	d.mu.Lock()
	wait := d.onCreate
	d.mu.Unlock()
	if wait != nil {
		wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fault(); err != nil {
		return nil, err
	}
	f := &memFile{disk: d}
	d.files[name] = f
	return f, nil
}

func (d *memDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fault(); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *memDisk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fault(); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

func (d *memDisk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fault(); err != nil {
		return err
	}
	d.durable = maps.Clone(d.files)
	return nil
}

func (d *memDisk) Close() error { return nil }

func (f *memFile) Close() error { return nil }

func (f *memFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.content)), nil
}

func (f *memFile) ReadAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if at >= int64(len(f.content)) {
		return 0, io.EOF
	}
	n := copy(p, f.content[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes a part only at the step that fails.
func (f *memFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.disk.fault()
	if errors.Is(err, errDead) && f.disk.step > f.disk.fails {
		return 0, err
	}
	if err != nil {
		p = p[:f.disk.random.IntN(len(p)+1)]
	}
	if end := at + int64(len(p)); end > int64(len(f.content)) {
		f.content = append(f.content, make([]byte, end-int64(len(f.content)))...)
	}
	copy(f.content[at:], p)
	return len(p), err
}

func (f *memFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.fault(); err != nil {
		return err
	}
	f.content = slices.Clone(f.content[:min(size, int64(len(f.content)))])
	return nil
}

func (f *memFile) Sync() error {
	if f.disk.onSync != nil {
		f.disk.onSync()
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.fault(); err != nil {
		return err
	}
	f.disk.syncs++
	f.synced = slices.Clone(f.content)
	return nil
}

// restart returns the disk as the next process finds it. After a power failure, each block that was
// not synced is as before or as written, in any mixture, and so is each name.
func (d *memDisk) restart(power bool) *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newMemDisk(d.random.Uint64())
	names := d.files
	if power && d.random.IntN(2) == 0 {
		names = d.durable
	}
	for name, f := range names {
		content := slices.Clone(f.content)
		if power {
			content = f.afterPowerFailure()
		}
		next.files[name] = &memFile{next, content, slices.Clone(content)}
	}
	return next
}

func (f *memFile) afterPowerFailure() []byte {
	const block = 64
	content := slices.Clone(f.synced)
	if f.disk.random.IntN(2) == 0 { // the new size is on disk
		content = make([]byte, len(f.content))
		copy(content, f.synced)
	}
	for at := 0; at < min(len(content), len(f.content)); at += block {
		if f.disk.random.IntN(2) == 0 {
			copy(content[at:], f.content[at:min(at+block, len(f.content))])
		}
	}
	return content
}
