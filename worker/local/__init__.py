"""Everything on one machine: the embedded PostgreSQL and the start of all parts, for `./nightshift up`. A platform needs none of it."""
