"""Clients that are generated from `/openapi.json`, in TypeScript and in Go, and a program that uses them on a broker.

`make generated-clients` runs this, where Node and Go are there; it is no part of `make test`. Versions are pinned in
`typescript/package-lock.json` and `go/go.sum`.
"""
