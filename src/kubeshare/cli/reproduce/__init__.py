"""``kubeshare reproduce``: figures and tables of the papers, run again."""
