package signing

// line is the heap of what is ready of an owner, the object that was made first at its head.
type line[T any] []*job[T]

func (l line[T]) Len() int           { return len(l) }
func (l line[T]) Less(i, j int) bool { return l[i].made.Before(l[j].made) }

func (l line[T]) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

// Push implements [heap.Interface].
func (l *line[T]) Push(x any) {
	j := x.(*job[T])
	j.place = len(*l)
	*l = append(*l, j)
}

// Pop implements [heap.Interface].
func (l *line[T]) Pop() any {
	last := len(*l) - 1
	j := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return j
}
