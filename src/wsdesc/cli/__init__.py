"""Command line: one file per command, assembled in `app`."""
