"""`kubeshare web`: a page that shows a cluster."""
