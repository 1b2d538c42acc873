"""The three APIs from a client's side: how a turn is asked for, and what an answer says and breaks."""
