"""What every command shares: its options, its exit status and how it prints quantities."""
