package errno

// Room returns how many of this process's descriptors clients may cause, as by connections. A quarter,
// 256 at most, is left for providers, files and calls. The system gives the lowest free number, so a
// descriptor with this number or a higher one is too many.
func Room() int {
	limit := OpenFiles()
	if limit == 0 {
		return 1 << 30 // unknown
	}
	most := int(min(limit, 1<<30))
	return most - min(256, most/4)
}
