"""How work moves: words, rules, statements, verbs and loops. It never names a job."""
