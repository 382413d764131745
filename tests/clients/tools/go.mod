module millrace/tests/clients/tools

go 1.23.0

require github.com/mongodb/mongo-tools v0.0.0-20250715155915-887641268977
