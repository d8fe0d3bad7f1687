package controller

// list is a doubly linked list whose links are part of what it lists, so that
// adding and removing make no garbage. The zero value is empty.
type list[T any] struct{ root link[T] }

// link is a place in at most one list at a time.
type link[T any] struct {
	prev, next *link[T]
	of         *T
}

// front returns the first of the list, or nil.
func (l *list[T]) front() *T {
	if l.root.next == nil {
		return nil
	}
	return l.root.next.of // nil for the root itself
}

func (l *list[T]) empty() bool { return l.front() == nil }

// pushBack puts k, which is a part of of and in no list, at the end.
func (l *list[T]) pushBack(k *link[T], of *T) {
	if l.root.next == nil {
		l.root.prev, l.root.next = &l.root, &l.root
	}
	k.of, k.prev, k.next = of, l.root.prev, &l.root
	k.prev.next, k.next.prev = k, k
}

// remove takes k out of the list that it is in.
func (k *link[T]) remove() {
	k.prev.next, k.next.prev = k.next, k.prev
	k.prev, k.next = nil, nil
}
