"""Long runs: clients that check every answer, samples of the gateway's process, and their curves."""
