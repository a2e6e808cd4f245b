module github.com/dulyhq/duly

go 1.26
