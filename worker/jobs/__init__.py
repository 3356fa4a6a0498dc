"""What the work is: one file (or folder) a kind, its SQL beside it. Jobs never import each other."""
