package lock

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// NewDeaf returns a locker whose waiters hear nothing and look again only when the
// lock expires: they do not see what is granted to them.
func NewDeaf(rdb redis.UniversalClient, cfg Config) (*Locker, error) {
	cfg.PollOnly = true
	l, err := New(rdb, cfg)
	if err == nil {
		l.lines.pollMin, l.lines.pollMax = time.Hour, time.Hour
	}
	return l, err
}
