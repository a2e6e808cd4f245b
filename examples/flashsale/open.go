package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

//go:embed schema.sql
var schema string

// A place says where the shop's database is: a file of SQLite, or a schema of
// its own in PostgreSQL. It travels to the workers.
type place struct {
	File   string // SQLite
	URL    string // PostgreSQL, if set
	Schema string
}

// open connects to a database. Its tables are there after create.
func (p place) open() (*store, error) {
	if p.URL == "" {
		return p.openSQLite()
	}
	return p.openPostgres()
}

// openSQLite uses one connection for writing and some for reading. SQLite has
// one writer at a time in any case: within a process it is cheaper to queue for
// a connection than to poll a busy file.
func (p place) openSQLite() (*store, error) {
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: p.File, RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)"},
		"_txlock": {"immediate"}, // a transaction that reads first could not wait for a writer
	}.Encode()}).String()
	write, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	write.SetMaxOpenConns(1)
	read, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open SQLite: %w", err), write.Close())
	}
	read.SetMaxOpenConns(4)
	read.SetMaxIdleConns(4)
	return &store{write: write, read: read}, nil
}

func (p place) openPostgres() (*store, error) {
	cfg, err := pgx.ParseConfig(p.URL)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	cfg.RuntimeParams["search_path"] = p.Schema
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(12)
	db.SetMaxIdleConns(12)
	return &store{write: db, read: db}, nil
}

// create makes the tables and fills the shelves.
func (p place) create(ctx context.Context, s *store, items []item) error {
	serial := "INTEGER PRIMARY KEY AUTOINCREMENT"
	if p.URL != "" {
		serial = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
		if _, err := s.write.ExecContext(ctx, "CREATE SCHEMA "+pgx.Identifier{p.Schema}.Sanitize()); err != nil {
			return fmt.Errorf("create the schema: %w", err)
		}
	}
	if _, err := s.write.ExecContext(ctx, strings.ReplaceAll(schema, "{{serial}}", serial)); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	for _, item := range items {
		if _, err := s.write.ExecContext(ctx, `INSERT INTO items (id, goods, stock) VALUES ($1, $2, $2)`,
			item.Name, item.Goods); err != nil {
			return fmt.Errorf("stock %q: %w", item.Name, err)
		}
	}
	return nil
}

// drop removes what create made. A file of SQLite goes with its directory.
func (p place) drop(ctx context.Context, s *store) error {
	if p.URL == "" {
		return nil
	}
	// CREATE SCHEMA may have failed or not have been reached.
	if _, err := s.write.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{p.Schema}.Sanitize()+" CASCADE"); err != nil {
		return fmt.Errorf("drop the schema: %w", err)
	}
	return nil
}
