"""Whether a job that is killed and run again ends with the tables of one that nobody disturbed."""
