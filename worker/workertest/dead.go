package workertest

import "context"

// Revive takes tasks out of the dead letter: they are due now, as if they had
// never failed. It returns how many of the IDs were there.
func (s *Source) Revive(ctx context.Context, ids ...string) (int, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return 0, s.wrap("revive in", err)
	}
	defer end()
	revived := 0
	for _, id := range ids {
		if e := s.tasks[id]; e != nil && e.state == Dead {
			progress := e.progress
			e.renew(e.task)
			e.progress = progress
			s.move(e, Due, s.now())
			revived++
		}
	}
	s.hint()
	return revived, nil
}
