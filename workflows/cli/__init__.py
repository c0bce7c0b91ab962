"""The command `aiayn`: one subcommand per stage, on folders and text files."""
