"""`aiayn`: one command a stage, on folders and text files."""
