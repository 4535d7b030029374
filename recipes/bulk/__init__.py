"""Many rows: read from files, answered in shards that survive a kill, on one machine or several."""
