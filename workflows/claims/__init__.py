"""Judges what the paper argues (§3 to §6 and its figures) by what was counted, timed and trained here."""
