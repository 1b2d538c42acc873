"""CPU time, memory, interleaved rounds, and the files that results are kept in."""
