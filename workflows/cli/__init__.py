"""The command `aiayn`, with one subcommand per stage, for folders and text files."""
