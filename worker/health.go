package worker

import (
	"sync"

	"go.uber.org/zap"
)

// health says once that a source does not answer, and once that it does again.
type health struct {
	log *zap.Logger

	mu   sync.Mutex
	down bool
}

// report takes the error of a call, or nil.
func (h *health) report(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && !h.down:
		h.log.Warn("source does not answer, trying on", zap.Error(err))
	case err == nil && h.down:
		h.log.Warn("source answers again")
	}
	h.down = err != nil
}
