"""The command line of run.py: commands, flags, help, and what each command prints."""
