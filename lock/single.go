package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A single is a store on one Redis, or on one cluster.
type single struct{ *node }

// take asks for a lock, and again while it is not known whether the token has it.
// It is safe to ask again: the same token gets the same answer. What it leaves in
// doubt it releases in the background.
func (s single) take(ctx context.Context, a ask) (grant, error) {
	pause := s.cfg.PollMin
	for doubt := false; ; doubt = true {
		g, err := s.ask(ctx, a)
		unknown := errors.Is(err, ErrUnknownOutcome)
		switch {
		case err == nil:
			return g, nil
		case errors.Is(err, ErrHeld):
			if doubt && !a.stand { // Redis may yet carry out what was asked before
				s.abandon(a.name, a.token)
			}
			return g, err
		case !unknown && !doubt && !errors.Is(err, ErrUnreplicated):
			return g, err
		case unknown && sleep(ctx, pause) == nil:
			pause = min(2*pause, time.Second)
			continue
		}
		s.abandon(a.name, a.token)
		if doubt && !unknown { // it says nothing about the request before
			err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", err, ended)
		}
		return g, err
	}
}
