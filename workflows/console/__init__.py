"""Options, exit statuses and number formats that all commands share."""
