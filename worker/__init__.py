"""The jobs process: claims, runs, records. It knows nothing of Flask."""
