package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/queue"
)

// A ground is what a sale stands on, its own alone: a directory, a database, and
// a queue. On a Redis or a PostgreSQL that is shared, the name keeps it apart.
type ground struct {
	name  string
	dir   string
	place place
	store *store
	redis *redis.Client
	url   string // of Redis
	queue *queue.Queue

	undo []func() error
}

// breakGround makes everything. A ground that is returned with an error is to be
// cleared as well.
func breakGround(ctx context.Context, c *config) (*ground, error) {
	g := &ground{name: "flashsale-" + strings.ToLower(rand.Text()[:10])}
	for _, step := range []func(context.Context, *config) error{g.makeDir, g.openDatabase, g.openQueue} {
		if err := step(ctx, c); err != nil {
			return g, err
		}
	}
	return g, nil
}

func (g *ground) makeDir(context.Context, *config) (err error) {
	if g.dir, err = os.MkdirTemp("", "flashsale-"); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	g.undo = append(g.undo, func() error { return os.RemoveAll(g.dir) })
	return nil
}

func (g *ground) openDatabase(ctx context.Context, c *config) (err error) {
	g.place = place{File: filepath.Join(g.dir, "shop.db"), URL: c.DatabaseURL, Schema: g.name}
	if g.store, err = g.place.open(); err != nil {
		return err
	}
	g.undo = append(g.undo, func() error {
		return errors.Join(inTime(func(ctx context.Context) error { return g.place.drop(ctx, g.store) }), g.store.close())
	})
	return g.place.create(ctx, g.store, c.items())
}

func (g *ground) openQueue(ctx context.Context, c *config) (err error) {
	if g.url = c.RedisURL; g.url == "" {
		url, stop, err := embedRedis()
		if err != nil {
			return err
		}
		g.url = url
		g.undo = append(g.undo, func() error { stop(); return nil })
	}
	if g.redis, err = openRedis(g.url); err != nil {
		return err
	}
	if err := g.redis.Ping(ctx).Err(); err != nil {
		return errors.Join(fmt.Errorf("reach Redis: %w", err), g.redis.Close())
	}
	g.undo = append(g.undo, func() error {
		return errors.Join(inTime(func(ctx context.Context) error { return forget(ctx, g.redis, g.name) }), g.redis.Close())
	})
	g.queue, err = queue.New(g.redis, g.name, queue.Config{})
	return err
}

// clear removes everything, the last made first.
func (g *ground) clear() error {
	var errs []error
	for len(g.undo) > 0 {
		last := len(g.undo) - 1
		errs = append(errs, g.undo[last]())
		g.undo = g.undo[:last]
	}
	return errors.Join(errs...)
}

// inTime gives cleaning up a context of its own: that of the sale may have ended.
func inTime(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return f(ctx)
}
