//go:build tools

// Package tools names the programs of MongoDB's database tools that scripts/setup builds: go.mod has their version,
// go.sum the checksums of all sources.
package tools

import (
	_ "github.com/mongodb/mongo-tools/mongodump/main"
	_ "github.com/mongodb/mongo-tools/mongoexport/main"
	_ "github.com/mongodb/mongo-tools/mongoimport/main"
	_ "github.com/mongodb/mongo-tools/mongorestore/main"
	_ "github.com/mongodb/mongo-tools/mongostat/main"
	_ "github.com/mongodb/mongo-tools/mongotop/main"
)
