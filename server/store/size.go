package store

// Size tells how large the embedded store's database is, in bytes: its file, and what of that is in use. Of an external
// cluster nothing is known here (both are zero): its members tell themselves.
func (s *Store) Size() (file, used int64) {
	if s.size == nil {
		return 0, 0
	}
	return s.size()
}
