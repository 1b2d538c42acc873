"""What outlives a request: stored responses, threads, remembered turns."""
