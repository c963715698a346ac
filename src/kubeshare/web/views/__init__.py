"""The rows and pages that `kubeshare web` shows."""
