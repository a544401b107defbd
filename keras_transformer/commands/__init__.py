"""Commands: flags from configurations, exit statuses, and how they start."""
